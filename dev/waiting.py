"""Waits for a condition, with a time limit."""

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MAX_COST_SECONDS = 0.02, 0.25, 2.0


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
        looked = monotonic()
        found = condition()
        if found:
            return found
        now = monotonic()
        if now - began > within:
            raise WaitTimeoutError(f"{what}: not within {within:g} seconds")
        if stop.wait(pause_after(now - began, now - looked)):
            raise StopRequestedError(what)


def pause_after(waited: float, cost: float) -> float:
    """Return how long to wait before a condition is looked at again, all in seconds.

    It is a fifth of the wait so far, and at least as long as it took to look, so that what is
    waited for has half of the processors: to look may be a command in a container.
    """
    pause = min(max(waited / 5, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
    return max(pause, min(cost, MAX_COST_SECONDS))
