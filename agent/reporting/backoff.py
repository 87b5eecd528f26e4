"""How long to wait before the next attempt."""

from random import Random

INITIAL_SECONDS = 1.0
# With a factor of 2, hosts that failed one after the other gather, and come back nearly at once.
FACTOR = 4
MAX_RETRY_AFTER_SECONDS = 300.0


class Backoff:
    """Exponential back-off with full jitter: a pause is drawn from zero up to a growing bound.

    A registry that asks for a pause gets it, up to five minutes, and the jitter on top, so that
    those whom it asked at the same time do not come back at the same time.
    """

    def __init__(self, *, max_seconds: float, random: Random) -> None:
        self._max_seconds = max_seconds
        self._random = random
        self._bound = min(INITIAL_SECONDS, max_seconds)

    def pause(self, retry_after_seconds: float | None = None) -> float:
        """Give the seconds to wait after one more failure."""
        jitter = self._random.uniform(0, self._bound)
        self._bound = min(self._bound * FACTOR, self._max_seconds)
        return min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS) + jitter

    def reset(self) -> None:
        """Forget the failures."""
        self._bound = min(INITIAL_SECONDS, self._max_seconds)
