"""What any request can do wrong, and the table from exceptions to answers."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

RETRY_AFTER_SECONDS = 5
DEFECT = "an error of this service, which its log tells about"


class BadInput(Exception):
    """What was sent cannot be used; the text says what was wrong and what would be right."""


class BodyTooLarge(Exception):
    """The body is over the limit of its route."""


class BodyTooSlow(Exception):
    """The body did not arrive in time."""


class CompressedBody(Exception):
    """The body is compressed, which is refused: a small one could unpack to a huge one."""


class Forbidden(Exception):
    """The key is good, but may not do this."""


COMMON_STATUSES: Mapping[type[Exception], int] = {
    BadInput: HTTPStatus.BAD_REQUEST,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    CompressedBody: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Forbidden: HTTPStatus.FORBIDDEN,
}


class Problem(NamedTuple):
    """What an exception becomes: a status, the text for the client, the reason for the log."""

    status: HTTPStatus
    text: str
    reason: str
    headers: Mapping[str, str] = {}


class ErrorTable:
    """Which status an exception becomes; a class stands for its subclasses too.

    An exception that is not in the table is a defect: 500, with the traceback in the log alone.
    """

    def __init__(self, table: Mapping[type[Exception], int], *, log: FilteringBoundLogger) -> None:
        self._table = {**COMMON_STATUSES, **table}
        self._log = log

    def problem(self, error: Exception, *, path: str) -> Problem:
        """Return what the error of a request for this path becomes."""
        status = self._status(error)
        if status is None:
            self._log.error("defect", path=path[:512], exc_info=error)
            return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, DEFECT, DEFECT)
        headers = {}
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            seconds = getattr(error, "retry_after_seconds", RETRY_AFTER_SECONDS)
            headers = {"Retry-After": str(seconds)}
        # What the client is told may hold an app's own output, which the log must not repeat.
        reason = getattr(error, "reason", str(error))
        return Problem(HTTPStatus(status), str(error), reason, headers)

    def _status(self, error: Exception) -> int | None:
        for kind in type(error).__mro__:
            if issubclass(kind, Exception) and kind in self._table:
                return self._table[kind]
        return None
