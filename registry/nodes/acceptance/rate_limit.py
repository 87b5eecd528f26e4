"""How much of something each host may do in a minute."""

from collections import OrderedDict
from collections.abc import Callable

MINUTE = 60.0
ROUNDING_SECONDS = 1e-6


class RateLimit:
    """A token bucket for each hostname: so much a minute, in bursts of that size.

    0 is no limit. Of each bucket only the time is kept at which it is full again; then it is
    dropped. So the memory is bounded by the hosts that took something within a minute.
    """

    def __init__(self, *, per_minute: int, monotonic: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._monotonic = monotonic
        # By hostname, the one that took something least recently first.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, hostname: str, amount: int = 1) -> float:
        """Take an amount and return 0, or return the seconds until it would be available.

        An amount of more than `per_minute` is never there.
        """
        if not self.per_minute:
            return 0.0
        now = self._monotonic()
        self._drop_full(now)
        full_at = max(self._full_at.get(hostname, now), now) + amount * MINUTE / self.per_minute
        missing = full_at - now - MINUTE - ROUNDING_SECONDS
        if missing > 0:
            return missing
        self._full_at[hostname] = full_at
        self._full_at.move_to_end(hostname)
        return 0.0

    def _drop_full(self, now: float) -> None:
        """Drop up to two full buckets, so that each call drops more than it adds."""
        for _ in range(2):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]
