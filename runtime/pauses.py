"""How long a client waits after a failed request."""

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
