"""The clock by which the ages of nodes are counted, and one that counts suspensions, too."""

import time
from collections.abc import Callable


def boot_seconds() -> float:
    """Return the seconds since this machine was started, also those while it was suspended.

    Monotonic clocks, such as that of the event loop, stand still meanwhile.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AgeClock:
    """A monotonic clock that a store can stop, and later set forward by the time it stood still.

    While a store that several registries share cannot be reached, nobody can tell whether hosts
    report elsewhere. That time counts against no node.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._shift = 0.0
        self._held: float | None = None

    def __call__(self) -> float:
        """Return the seconds. They never go back."""
        return self._monotonic() + self._shift if self._held is None else self._held

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
