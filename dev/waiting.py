"""Waiting for a condition, with a limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.05


class TookTooLongError(Exception):
    """What was waited for did not happen within the limit."""


class StopAskedError(Exception):
    """Somebody asked to stop while something was waited for."""


def until(
    look: Callable[[], T | None], what: str, *, within: float, stop: Event | None = None
) -> T:
    """Look again and again until there is something true to return.

    Args:
        look: what gives the thing waited for, or something false as long as it is not there.
        what: the thing's name, for the error.
        within: the limit in seconds.
        stop: set by whoever wants the waiting to end.

    Raises:
        TookTooLongError: nothing came within the limit.
        StopAskedError: ``stop`` was set.

    """
    stop = stop or Event()
    end = monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if monotonic() > end:
            raise TookTooLongError(f"{what}: not within {within:g} seconds")
        if stop.wait(PAUSE_SECONDS):
            raise StopAskedError(what)
