"""How often a node may change."""

import math
from collections import OrderedDict
from collections.abc import Callable

from registry.errors import ChangesTooFast

MINUTE = 60.0
ROUNDING_SECONDS = 1e-6


class ChangeLimit:
    """A token bucket for each hostname: so many changes a minute, in bursts of that size.

    0 is no limit. Of each bucket only the time is kept at which it is full again; then it is
    dropped. So the memory is bounded by the hosts that changed within a minute.
    """

    def __init__(self, *, per_minute: int, monotonic: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._seconds_per_change = MINUTE / per_minute if per_minute else 0.0
        self._monotonic = monotonic
        # By hostname, the least recently changed one first.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, hostname: str) -> None:
        """Count a change of a node. Raises ChangesTooFast, and counts nothing, if it is too many.

        The error says after how many seconds the next change is accepted.
        """
        if not self._per_minute:
            return
        now = self._monotonic()
        self._drop_full(now)
        full_at = max(self._full_at.get(hostname, now), now) + self._seconds_per_change
        if full_at - now > MINUTE + ROUNDING_SECONDS:
            raise ChangesTooFast(
                f"{hostname} changes more often than {self._per_minute} times a minute"
                " (nodes.changes_per_minute); heartbeats that change nothing are accepted",
                retry_after_seconds=math.ceil(full_at - now - MINUTE - ROUNDING_SECONDS),
            )
        self._full_at[hostname] = full_at
        self._full_at.move_to_end(hostname)

    def _drop_full(self, now: float) -> None:
        """Drop up to two full buckets, so that each change drops more than it adds."""
        for _ in range(2):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]
