"""What the registry rejects: every error of its rules and its store, and the status of each."""

from collections.abc import Mapping
from http import HTTPStatus

from clients.message import HostnameInvalid


class HostnameMismatch(Exception):
    """The hostname in a heartbeat's body is not the one in the path."""


class NodeNotFound(Exception):
    """No node with this hostname is known."""


class CloneRejected(Exception):
    """A heartbeat for a hostname that another host has, which is not stale.

    It has another identity than the node; or none, without a key that may write; or it is of an
    instance of the agent that another one has replaced.
    """


class IdentityMismatch(Exception):
    """The node that is to be deleted has another identity than the one that was given."""


class NodeFresh(Exception):
    """The node that is to be deleted only if it is stale is fresh."""


class ChangesTooFast(Exception):
    """The node changes more often than it may; an unchanged heartbeat would be accepted."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class CapacityReached(Exception):
    """The nodes take as much memory as they may; those that are known are kept."""

    retry_after_seconds = 60


class NotLoaded(Exception):
    """The nodes are still being read from the store."""

    retry_after_seconds = 1


class WarmingUp(Exception):
    """The registry does not know all hosts yet, so it withholds targets."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NoRollCall(Exception):
    """The settings name no hosts that are expected."""


class ExpectedUnread(Exception):
    """No list of expected hosts was read yet."""

    retry_after_seconds = 2


class StoreOpenError(Exception):
    """The store cannot be opened; the text says why and what to do. The store was not changed."""


class StoreVersionError(StoreOpenError):
    """Another release wrote the store, in a version that this one does not know."""


class StoreUnavailable(Exception):
    """The store did not accept an operation; it may accept it later."""

    retry_after_seconds = 5


class StoreFull(StoreUnavailable):
    """The store has no room for the operation. All that it held before is intact."""


class NoRoomForChange(StoreFull):
    """The store has no room for this large operation; it may have room for small ones."""


class StoreUnreachable(StoreUnavailable):
    """The store does not answer, rejects, or is locked by another program. Memory can be read.

    If it does not answer, the outcome of the operation is unknown.
    """


class TooManyConflicts(Exception):
    """Other registries change a node all the time. The store works, and is as they left it."""


class NodeTooLarge(Exception):
    """The store takes no node of this size."""


class NotAcceptable(Exception):
    """The client excludes each form in which there is an answer."""


class TooManyReaders(Exception):
    """There is no memory for one more reader of a large answer."""

    retry_after_seconds = 5


class TooManyHeartbeats(Exception):
    """There is no memory for one more large heartbeat while others are being read."""

    retry_after_seconds = 1


# The errors that a client can cause or meet. StoreOpenError ends the process instead.
STATUS_BY_ERROR: Mapping[type[Exception], int] = {
    HostnameInvalid: HTTPStatus.BAD_REQUEST,
    HostnameMismatch: HTTPStatus.BAD_REQUEST,
    NodeNotFound: HTTPStatus.NOT_FOUND,
    NoRollCall: HTTPStatus.NOT_FOUND,
    NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    CloneRejected: HTTPStatus.CONFLICT,
    IdentityMismatch: HTTPStatus.CONFLICT,
    NodeFresh: HTTPStatus.CONFLICT,
    ChangesTooFast: HTTPStatus.TOO_MANY_REQUESTS,
    CapacityReached: HTTPStatus.INSUFFICIENT_STORAGE,
    NotLoaded: HTTPStatus.SERVICE_UNAVAILABLE,
    WarmingUp: HTTPStatus.SERVICE_UNAVAILABLE,
    ExpectedUnread: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyReaders: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyHeartbeats: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyConflicts: HTTPStatus.SERVICE_UNAVAILABLE,
    NodeTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
}
