"""The rules of apps: what may be asked of them, and how it is done without half states."""

from agent.apps.apps import Apps
from agent.apps.defaults import AppDefaults
from agent.apps.marks import is_data_path, is_user_name
from agent.apps.spec import AppChanges, NewApp
from agent.apps.turns import Asker

__all__ = ["AppChanges", "AppDefaults", "Apps", "Asker", "NewApp", "is_data_path", "is_user_name"]
