"""What the parts of a registry have in common: its context, clocks and limits of age."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from registry.nodes.changes import NodeChanges
from registry.nodes.directory import DUE, FRESH, SOON, STALE, Directory
from registry.store.protocol import NodeStore

# A node that is held expires after so many times `expire_after`.
MAX_HOLD = 7
CHANGE_LOG_BYTES = 32 * 1024 * 1024


class Clocks(NamedTuple):
    """`wall` returns Unix time, which is shown; the others return seconds.

    `monotonic` decides the ages of nodes: it stands still while nobody can tell whether hosts
    report. `steady` goes on meanwhile, for all else.
    """

    wall: Callable[[], float]
    monotonic: Callable[[], float]
    steady: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Limits in seconds, and the monotonic time at which the registry started.

    An `expire_after` of 0 means never. At most `expire_at_most_percent` of all nodes expire around
    one time; 0 is no limit.
    """

    stale_after: float
    expire_after: float
    started: float
    expire_at_most_percent: int

    @property
    def max_flush_interval(self) -> float:
        """Seconds without a write after which the store is given the present time.

        A crash makes the registry forget at most that much of a host's silence.
        """
        return self.stale_after / 10

    @property
    def window(self) -> float:
        """Seconds before and after the present in which nodes expire together: an hour of a day."""
        return self.expire_after / 24

    def knows_a_window(self, now: float) -> bool:
        """Return whether the registry knows how many nodes expired within the last window.

        Those that expired before its start are stored nowhere.
        """
        return self.expire_at_most_percent == 0 or now - self.started >= self.window

    def is_stale(self, heard: float, now: float) -> bool:
        """Return whether a node last seen at `heard` is stale or expired at `now`."""
        return now - heard >= self.stale_after

    def stage_of(self, heard: float, now: float) -> int:
        """Return the stage of a node last seen at `heard` that may expire."""
        if self.is_due_soon(heard, now):
            return DUE if self.is_due(heard, now) else SOON
        return STALE if self.is_stale(heard, now) else FRESH

    def is_due_soon(self, heard: float, now: float) -> bool:
        """Return whether a node last seen at `heard` is due, or will be within a window."""
        return self.expire_after > 0 and now - heard >= self.expire_after - self.window

    def is_held_long_enough(self, heard: float, now: float) -> bool:
        """Return whether a node expires by now, however many expire with it."""
        return now - heard >= MAX_HOLD * self.expire_after

    def is_due(self, heard: float, now: float) -> bool:
        """Return whether a node last seen at `heard` is due to expire at `now`."""
        return self.expire_after > 0 and now - heard >= self.expire_after

    def may_expire(self, now: float) -> bool:
        """Return whether nodes expire: every living host had the time to report since the start."""
        return now - self.started >= self.stale_after


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """The settings of nodes: when they age, how much they may take, and which hosts are denied.

    `store_url` is what is shown of the store; it holds no secrets. `expected` is the file with the
    hosts that do not expire, None without one. `max_mib` and `changes_per_minute` are 0 for no
    limit; `warm_up` is in seconds. `change_log_bytes` bounds the changes kept for watchers.
    """

    freshness: Freshness
    store_url: str
    max_mib: int = 0
    changes_per_minute: int = 0
    denied: Sequence[str] = ()
    expected: Path | None = None
    warm_up: float = 0.0
    change_log_bytes: int = CHANGE_LOG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryContext:
    """Made once; each part takes what it needs from it. It has no methods."""

    store: NodeStore
    directory: Directory
    changes: NodeChanges
    settings: NodeRules
    clocks: Clocks
    log: FilteringBoundLogger
    metrics: CollectorRegistry
