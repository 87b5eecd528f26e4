"""The clock by which the ages of nodes are counted, and one that counts suspensions, too."""

import math
import time
from collections.abc import Callable
from threading import Lock


def boot_seconds() -> float:
    """Return the seconds since this machine was started, also those while it was suspended.

    Monotonic clocks, such as that of the event loop, stand still meanwhile.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AgeClock:
    """A monotonic clock that a store can stop, and later set forward by the time it stood still.

    While a store that several registries share cannot be reached, nobody can tell whether hosts
    report elsewhere. That time counts against no node.

    Nor does time in which the registry itself did not run, such as while its process was stopped or
    its machine was paused: a running registry asks more often than every ``max_pause`` seconds.
    """

    def __init__(self, monotonic: Callable[[], float], *, max_pause: float = math.inf) -> None:
        self._monotonic = monotonic
        self._max_pause = max_pause
        self._asked = monotonic()
        self._latest = -math.inf
        self._lock = Lock()  # the thread of a store asks, too
        self._shift = 0.0
        self._held: float | None = None

    def __call__(self) -> float:
        """Return the seconds. They never go back."""
        now = self._monotonic()
        if now > self._asked:
            if now - self._asked > self._max_pause:
                self._leave_out_pause(now)
            self._asked = now
        if self._held is not None:
            return self._held
        self._latest = max(self._latest, now + self._shift)
        return self._latest

    def _leave_out_pause(self, now: float) -> None:
        with self._lock:
            pause = now - self._asked
            if pause > self._max_pause:
                self._asked = now
                self._shift -= pause

    def hold(self) -> None:
        """Stop."""
        self._held = self()

    def resume(self) -> None:
        """Go on from where it was held; nothing happens if it was not."""
        if self._held is not None:
            self._shift = self._held - self._monotonic()
            self._held = None

    def make_up(self, seconds: float) -> float:
        """Move ahead, also while held, by no more than it was held; return by how much."""
        made_up = max(0.0, min(seconds, self._monotonic() - self()))
        if self._held is None:
            self._shift += made_up
        else:
            self._held += made_up
        return made_up
