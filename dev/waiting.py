"""Waits for a condition, with a time limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
PAUSE_SECONDS = 0.05


class WaitTimeoutError(Exception):
    """The condition did not become true within the limit."""


class StopRequestedError(Exception):
    """The wait was cancelled."""


def until(
    condition: Callable[[], T | None], what: str, *, within: float, stop: Event | None = None
) -> T:
    """Call ``condition`` until its result is true, and return that.

    Args:
        condition: is called every PAUSE_SECONDS.
        what: a name of the condition, for the error.
        within: the limit in seconds.
        stop: an event that cancels the wait.

    Raises:
        WaitTimeoutError: the condition was not true within the limit.
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
