"""The rules of apps: what can be asked of them, carried out completely or not at all."""

from agent.apps.composition import open_apps
from agent.apps.containers.data import is_data_path
from agent.apps.containers.spec import is_user_name
from agent.apps.defaults import AppDefaults
from agent.apps.operations.runner import Requester
from agent.apps.service import Apps
from agent.apps.validation import is_path
from agent.model import AppChanges, NewApp

__all__ = [
    "AppChanges",
    "AppDefaults",
    "Apps",
    "NewApp",
    "Requester",
    "is_data_path",
    "is_path",
    "is_user_name",
    "open_apps",
]
