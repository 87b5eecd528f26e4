"""What can go wrong with an app, named after it."""


class AppError(Exception):
    """A change or a question about an app that cannot be met; the text is for the operator."""


class InvalidApp(AppError):
    """A field of an app is not what it may be."""


class InvalidPassword(AppError):
    """The password cannot be set as it is."""


class InvalidLabel(AppError):
    """The label is no ``key:value``."""


class AppNotFound(AppError):
    """There is no app of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no app `{name}`; GET /v1/apps lists those that are")


class LabelNotFound(AppError):
    """The app has no such label."""


class AppExists(AppError):
    """There is an app of that name already."""


class AppBusy(AppError):
    """Another change of the app is under way."""


class AppNotRunning(AppError):
    """What was asked for needs a running app."""


class NameTaken(AppError):
    """A container or volume of that name exists, and is not ours."""


class PortInUse(AppError):
    """A port is held by somebody else."""


class NoFreePort(AppError):
    """No port of the configured range is free."""


class StartFailed(AppError):
    """The container does not start, or does not stay up.

    ``reason`` is the text without the app's own words, which may hold what no log should.
    """

    def __init__(self, reason: str, *, said: str = "") -> None:
        super().__init__(f"{reason}; it wrote: {said}" if said else reason)
        self.reason = reason


class DataInUse(AppError):
    """A container that is not the app's uses the app's volume."""


class UnfitImage(AppError):
    """The image is not one that an app can be made of."""


class MemoryInUse(AppError):
    """The app uses more memory than it is to get."""


class NoSuchUser(AppError):
    """The app's image has no such user, or nothing that sets passwords."""
