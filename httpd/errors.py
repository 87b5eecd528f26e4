"""What any request can do wrong, and the table from exceptions to answers."""

from collections.abc import Mapping
from http import HTTPStatus

RETRY_AFTER_SECONDS = 5


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


class ErrorStatuses:
    """Which status an exception becomes; a class stands for its subclasses too."""

    def __init__(self, table: Mapping[type[Exception], int]) -> None:
        self._table = {**COMMON_STATUSES, **table}

    def status_for(self, error: Exception) -> int | None:
        """Give the status, or None where the error is a defect of ours."""
        for kind in type(error).__mro__:
            if issubclass(kind, Exception) and kind in self._table:
                return self._table[kind]
        return None


def retry_after(error: Exception) -> str:
    """Give the seconds after which to try again what failed for a 503."""
    return str(getattr(error, "retry_after_seconds", RETRY_AFTER_SECONDS))
