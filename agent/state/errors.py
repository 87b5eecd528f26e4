"""The errors of the agent's state directory. Each text names the file or directory."""


class StateError(Exception):
    """The state cannot be used."""


class StateInUse(StateError):
    """Another agent uses this state directory."""


class StateUnusable(StateError):
    """The state directory cannot be created or written."""


class IdentityError(StateError):
    """The identity cannot be read or written."""
