"""Pauses that grow with each failure: of a client, and of what is tried again and again."""

import time
from collections.abc import Callable, Collection
from random import Random

INITIAL_SECONDS = 1.0
# With a factor of 2, hosts that failed at different times drift together and return in one burst.
FACTOR = 4


class Backoff:
    """Exponential back-off with full jitter: each pause is random, up to a bound that grows.

    The bound grows from one second to ``max_seconds``.
    """

    def __init__(self, *, max_seconds: float, random: Random) -> None:
        self._max_seconds = max_seconds
        self._random = random
        self._bound = min(INITIAL_SECONDS, max_seconds)

    def pause(self, at_least: float = 0.0) -> float:
        """Count a failure, and return the seconds to wait: ``at_least`` plus a random jitter.

        The jitter spreads the requests of hosts that were given the same pause at the same time.
        """
        jitter = self._random.uniform(0, self._bound)
        self._bound = min(self._bound * FACTOR, self._max_seconds)
        return at_least + jitter

    def reset(self) -> None:
        """Start again at the initial bound, after a success."""
        self._bound = min(INITIAL_SECONDS, self._max_seconds)


class Pauses:
    """When to try each of several things again: after pauses that double, up to a bound.

    What has no pause is due.
    """

    def __init__(
        self, first: float, longest: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._longest = longest
        self._monotonic = monotonic
        # When each is due, and its last pause.
        self._waits: dict[str, tuple[float, float]] = {}

    def last(self, key: str) -> float:
        """Return its last pause in seconds, 0 if it has none."""
        return self._waits.get(key, (0.0, 0.0))[1]

    def delay(self, key: str) -> float:
        """Begin its next pause, and return the seconds."""
        pause = min(2 * self.last(key), self._longest) or self._first
        self._waits[key] = (self._monotonic() + pause, pause)
        return pause

    def postpone(self, key: str, seconds: float) -> None:
        """Make it due after so many seconds; its next pause stays."""
        self._waits[key] = (self._monotonic() + seconds, self.last(key))

    def make_all_due(self) -> None:
        """Make all due at once; their next pauses stay."""
        self._waits = {key: (0.0, pause) for key, (_, pause) in self._waits.items()}

    def is_due(self, key: str) -> bool:
        """Return whether its pause is over."""
        return key not in self._waits or self._waits[key][0] <= self._monotonic()

    def seconds_to_next(self, keys: Collection[str], most: float) -> float:
        """Return the seconds until one of these is due that has a pause, ``most`` at most."""
        now = self._monotonic()
        return max(
            0.0, min([most, *(at - now for key, (at, _) in self._waits.items() if key in keys)])
        )

    def forget(self, key: str) -> None:
        """Begin anew with the first pause."""
        self._waits.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others."""
        self._waits = {key: wait for key, wait in self._waits.items() if key in keys}
