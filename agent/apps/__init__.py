"""The rules of apps: what may be asked of them, and how it is done without half states."""

from agent.apps.container_spec import is_data_path, is_user_name
from agent.apps.defaults import AppDefaults
from agent.apps.operations.runner import Requester
from agent.apps.service import Apps
from agent.apps.validation import AppChanges, NewApp

__all__ = [
    "AppChanges",
    "AppDefaults",
    "Apps",
    "NewApp",
    "Requester",
    "is_data_path",
    "is_user_name",
]
