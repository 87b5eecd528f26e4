"""When a node is fresh, stale or expired. All times are seconds of one monotonic clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Clocks(NamedTuple):
    """`wall` returns Unix time, which is shown; `monotonic` returns seconds, which decide ages."""

    wall: Callable[[], float]
    monotonic: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Limits in seconds, and the monotonic time at which the registry started.

    An `expire_after` of 0 means never.
    """

    stale_after: float
    expire_after: float
    started: float

    @property
    def max_flush_interval(self) -> float:
        """Seconds without a write after which the store is given the present time.

        A crash makes the registry forget at most that much of a host's silence.
        """
        return self.stale_after / 10

    def is_stale(self, heard: float, now: float) -> bool:
        """Return whether a node last heard of at `heard` is stale or expired at `now`."""
        return now - heard >= self.stale_after

    def is_expired(self, heard: float, now: float) -> bool:
        """Return whether a node last heard of at `heard` is to be forgotten at `now`.

        Nothing expires until the registry has run for `stale_after`, so that every living host
        had the time to report.
        """
        if self.expire_after == 0 or now - self.started < self.stale_after:
            return False
        return now - heard >= self.expire_after
