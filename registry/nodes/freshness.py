"""When a node is fresh, stale or expired; all times are those of one monotonic clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Limits in seconds; `expire_after` 0 is never. `started` is when this registry did."""

    stale_after: float
    expire_after: float
    started: float

    @property
    def max_flush_interval(self) -> float:
        """Give how many seconds of silence a crash may make the registry forget."""
        return self.stale_after / 10

    def is_stale(self, heard: float, now: float) -> bool:
        """Tell whether a node heard of then is stale or worse now."""
        return now - heard >= self.stale_after

    def is_expired(self, heard: float, now: float) -> bool:
        """Tell whether a node heard of then is to be forgotten now.

        Nothing expires until every living host had the time to say so to this registry.
        """
        if self.expire_after == 0 or now - self.started < self.stale_after:
            return False
        return now - heard >= self.expire_after
