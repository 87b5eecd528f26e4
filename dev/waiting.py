"""Waiting for a condition, with a limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.05


class WaitTimeoutError(Exception):
    """What was waited for did not happen within the limit."""


class StopRequestedError(Exception):
    """Somebody asked to stop while something was waited for."""


def until(
    condition: Callable[[], T | None], what: str, *, within: float, stop: Event | None = None
) -> T:
    """Look again and again until there is something true to return.

    Args:
        condition: what gives the thing waited for, or something false as long as it is not there.
        what: the thing's name, for the error.
        within: the limit in seconds.
        stop: set by whoever wants the waiting to end.

    Raises:
        WaitTimeoutError: nothing came within the limit.
        StopRequestedError: ``stop`` was set.

    """
    stop = stop or Event()
    end = monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if monotonic() > end:
            raise WaitTimeoutError(f"{what}: not within {within:g} seconds")
        if stop.wait(PAUSE_SECONDS):
            raise StopRequestedError(what)
