"""How long a reporter waits after a failed heartbeat."""

from random import Random

INITIAL_SECONDS = 1.0
# With a factor of 2, hosts that failed at different times drift together and return in one burst.
FACTOR = 4
MAX_RETRY_AFTER_SECONDS = 300.0


class Backoff:
    """Exponential back-off with full jitter: each pause is random, up to a bound that grows.

    The bound grows from one second to ``max_seconds``. A pause that the registry asks for is
    honoured up to five minutes, with the jitter added, so that the hosts that were asked at the
    same time do not return at the same time.
    """

    def __init__(self, *, max_seconds: float, random: Random) -> None:
        self._max_seconds = max_seconds
        self._random = random
        self._bound = min(INITIAL_SECONDS, max_seconds)

    def pause(self, retry_after_seconds: float | None = None) -> float:
        """Count one more failure and return the seconds to wait."""
        jitter = self._random.uniform(0, self._bound)
        self._bound = min(self._bound * FACTOR, self._max_seconds)
        return min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS) + jitter

    def reset(self) -> None:
        """Start again at the initial bound, after a success."""
        self._bound = min(INITIAL_SECONDS, self._max_seconds)
