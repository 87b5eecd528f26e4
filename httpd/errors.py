"""The errors that any request can meet, and the table from exceptions to responses."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

# After so long a client may try again, unless the error knows better.
RETRY_AFTER_SECONDS: Mapping[int, int] = {
    HTTPStatus.SERVICE_UNAVAILABLE: 5,
    HTTPStatus.INSUFFICIENT_STORAGE: 60,
}
DEFECT = "an error of this service; its log has the details"


class BadInput(Exception):
    """The input cannot be used; the text says what is wrong and what would be right."""


class BodyTooLarge(Exception):
    """The body is over the limit of its route."""


class BodyTooSlow(Exception):
    """The body did not arrive in time."""


class CompressedBody(Exception):
    """The body is compressed, which is rejected: a small one could unpack to a huge one."""


class Forbidden(Exception):
    """The key is valid, but does not allow this."""


class NoPlace(Exception):
    """As many requests use something at present as may, or as may with one key."""


STATUS_BY_ERROR: Mapping[type[Exception], int] = {
    BadInput: HTTPStatus.BAD_REQUEST,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    CompressedBody: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Forbidden: HTTPStatus.FORBIDDEN,
    NoPlace: HTTPStatus.SERVICE_UNAVAILABLE,
}


class Problem(NamedTuple):
    """The response to an exception: status, text for the client, reason for the log."""

    status: HTTPStatus
    text: str
    reason: str
    headers: Mapping[str, str] = {}


class ErrorTable:
    """Maps exceptions to statuses; a class in the table includes its subclasses.

    An exception that is not in the table is a defect: 500, with the traceback only in the log.
    """

    def __init__(self, table: Mapping[type[Exception], int], *, log: FilteringBoundLogger) -> None:
        self._table = {**STATUS_BY_ERROR, **table}
        self._log = log

    def problem(self, error: Exception, *, path: str) -> Problem:
        """Return the response to the error of a request for this path; a defect is logged."""
        status = self._status(error)
        if status is None:
            self._log.error("defect", path=path[:512], exc_info=error)
            return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, DEFECT, DEFECT)
        seconds = getattr(error, "retry_after_seconds", RETRY_AFTER_SECONDS.get(status))
        headers = {} if seconds is None else {"Retry-After": str(seconds)}
        # The text for the client may contain an app's output, which must not be logged.
        reason = getattr(error, "reason", str(error))
        return Problem(HTTPStatus(status), str(error), reason, headers)

    def _status(self, error: Exception) -> int | None:
        for kind in type(error).__mro__:
            if issubclass(kind, Exception) and kind in self._table:
                return self._table[kind]
        return None
