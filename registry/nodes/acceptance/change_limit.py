"""How often a node may change."""

import math
from collections.abc import Callable

from registry.errors import ChangesTooFast
from registry.nodes.acceptance.rate_limit import RateLimit


class ChangeLimit:
    """So many changes of a node a minute, in bursts of that size; 0 is no limit."""

    def __init__(self, *, per_minute: int, monotonic: Callable[[], float]) -> None:
        self._rate = RateLimit(per_minute=per_minute, monotonic=monotonic)

    def __len__(self) -> int:
        return len(self._rate)

    def take(self, hostname: str) -> None:
        """Count a change of a node. Raises ChangesTooFast, and counts nothing, if it is too many.

        The error says after how many seconds the next change is accepted.
        """
        seconds = self._rate.take(hostname)
        if seconds:
            raise ChangesTooFast(
                f"{hostname} changes more often than {self._rate.per_minute} times a minute"
                " (nodes.changes_per_minute); heartbeats that change nothing are accepted",
                retry_after_seconds=math.ceil(seconds),
            )
