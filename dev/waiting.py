"""Waiting for a condition, with a limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.05


class TookTooLongError(Exception):
    """What was waited for did not happen within the limit."""


def until(look: Callable[[], T | None], what: str, *, within: float) -> T:
    """Look again and again until there is something true to return.

    Args:
        look: what gives the thing waited for, or something false as long as it is not there.
        what: the thing's name, for the error.
        within: the limit in seconds.

    Raises:
        TookTooLongError: nothing came within the limit.

    """
    end = monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if monotonic() > end:
            raise TookTooLongError(f"{what}: not within {within:g} seconds")
        Event().wait(PAUSE_SECONDS)
