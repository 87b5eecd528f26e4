"""The errors of operations and queries on apps, and the status of each."""

from collections.abc import Mapping
from http import HTTPStatus

from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineError,
    ImageServerBusy,
    ImageServerUnavailable,
    ImageUnavailable,
    InvalidParameter,
    ObjectNotFound,
)
from agent.state.database import StoreError

IT_WROTE = "; it wrote:\n"


class AppError(Exception):
    """An operation or a query on an app fails; the text is for the operator."""


class InvalidApp(AppError):
    """A field of an app has an invalid value."""


class ImageNotAllowed(AppError):
    """The settings of the agent do not allow this image."""


class InvalidPassword(AppError):
    """The text cannot be a password."""


class InvalidLabel(AppError):
    """The label is not ``key:value``."""


class AppNotFound(AppError):
    """There is no app of that name."""

    def __init__(self, name: str, *, reason: str = "GET /v1/apps lists those that are") -> None:
        super().__init__(f"there is no app `{name}`; {reason}")


class LabelNotFound(AppError):
    """The app has no such label."""


class AppExists(AppError):
    """An app of that name exists."""


class RevisionNotFound(AppError):
    """The app has no revision of that number."""


class NoRevisionBefore(AppError):
    """The app has no revision before its present one."""


class RollbackRejected(AppError):
    """The host or the settings do not allow what the revision has."""


class KeyLost(AppError):
    """The key of an operation was revoked, or allows less, while the operation waited."""


class AppBusy(AppError):
    """Another operation of the app runs."""


class OperationCancelled(AppError):
    """Somebody stopped or deleted the app while the operation pulled its image or waited."""


class AppNotRunning(AppError):
    """The operation or query needs a running app."""


class NameTaken(AppError):
    """A container or volume of that name exists, and is not the agent's."""


class AppOfAnother(AppError):
    """Another agent has adopted the app."""


class NetworkUnfit(AppError):
    """The network of isolated apps does not isolate them."""


class PortInUse(AppError):
    """A port is held by another app, container or program, as ``fact`` says."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}; {remedy}")
        self.fact = fact


class PortForbidden(AppError):
    """The key may give apps only ports from which the agent picks."""


class NoFreePort(AppError):
    """No port of the configured range is free."""


class StartFailed(AppError):
    """The container does not start, or does not stay up.

    ``reason`` is the text without ``output``, the app's last lines, which may be secret: they are
    not logged. ``exit_code`` is that of the container, None if it has not ended.
    """

    def __init__(self, reason: str, *, output: str = "", exit_code: int | None = None) -> None:
        super().__init__(f"{reason}{IT_WROTE}{output}" if output else reason)
        self.reason = reason
        self.output = output
        self.exit_code = exit_code


def reason_of(error: Exception) -> str:
    """Return the text of an error without an app's own output, which may be secret."""
    return error.reason if isinstance(error, StartFailed) else str(error)


class DataInUse(AppError):
    """Another container uses the app's volume."""


class UnfitImage(AppError):
    """The image cannot be used for an app."""


class MemoryPromised(AppError):
    """The memory that is promised to apps would exceed its limit."""


class TooManyApps(AppError):
    """There are as many apps as there may be, or they are as large together."""


class TooMuchKeptData(AppError):
    """Deleted apps have left as many volumes as may be kept."""


class MemoryInUse(AppError):
    """The app uses more memory than the new limit."""


class NoSuchUser(AppError):
    """The app's image has no such user, or no program that sets passwords."""


class PasswordProgramFailed(NoSuchUser):
    """The app's program did not set the password of a user that is there; it may later."""


class DataMissing(AppError):
    """The app has no volumes, or one of them is gone."""


class InvalidData(AppError):
    """The client sent something other than a tar of the app's data."""


class DataBrokenOff(AppError):
    """The tar ended too early."""


class DataTooSlow(AppError):
    """The client sent no byte of the tar for too long."""


class AppNotStopped(AppError):
    """The operation needs an app that is stopped."""


# A class stands for its subclasses, except those that are listed themselves.
STATUS_BY_ERROR: Mapping[type[Exception], int] = {
    InvalidApp: HTTPStatus.BAD_REQUEST,
    ImageNotAllowed: HTTPStatus.FORBIDDEN,
    InvalidLabel: HTTPStatus.BAD_REQUEST,
    InvalidPassword: HTTPStatus.BAD_REQUEST,
    InvalidData: HTTPStatus.BAD_REQUEST,
    DataBrokenOff: HTTPStatus.BAD_REQUEST,
    DataTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    KeyLost: HTTPStatus.FORBIDDEN,
    PortForbidden: HTTPStatus.FORBIDDEN,
    AppNotFound: HTTPStatus.NOT_FOUND,
    LabelNotFound: HTTPStatus.NOT_FOUND,
    RevisionNotFound: HTTPStatus.NOT_FOUND,
    ImageServerBusy: HTTPStatus.TOO_MANY_REQUESTS,
    ImageServerUnavailable: HTTPStatus.BAD_GATEWAY,
    ImageUnavailable: HTTPStatus.NOT_FOUND,
    InvalidParameter: HTTPStatus.BAD_REQUEST,
    AppError: HTTPStatus.CONFLICT,
    ObjectNotFound: HTTPStatus.CONFLICT,
    EngineConflict: HTTPStatus.CONFLICT,
    TooManyApps: HTTPStatus.INSUFFICIENT_STORAGE,
    TooMuchKeptData: HTTPStatus.INSUFFICIENT_STORAGE,
    DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    EngineError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
