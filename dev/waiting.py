"""Waits for a condition, with a time limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 0.2


class WaitTimeoutError(Exception):
    """The condition did not become true within the limit."""


class StopRequestedError(Exception):
    """The wait was cancelled."""


def until(
    condition: Callable[[], T | None], what: str, *, within: float, stop: Event | None = None
) -> T:
    """Call ``condition`` until its result is true, and return that.

    Args:
        condition: is called again after a pause.
        what: a name of the condition, for the error.
        within: the limit in seconds.
        stop: an event that cancels the wait.

    Raises:
        WaitTimeoutError: the condition was not true within the limit.
        StopRequestedError: ``stop`` was set.

    """
    stop = stop or Event()
    began = monotonic()
    while True:
        found = condition()
        if found:
            return found
        waited = monotonic() - began
        if waited > within:
            raise WaitTimeoutError(f"{what}: not within {within:g} seconds")
        if stop.wait(pause_after(waited)):
            raise StopRequestedError(what)


def pause_after(waited: float) -> float:
    """Return how long to wait before a condition is looked at again, all in seconds.

    It is a tenth of the wait so far: most conditions cost a request or more.
    """
    return min(max(waited / 10, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
