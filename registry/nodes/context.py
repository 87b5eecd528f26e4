"""What the parts of a registry have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from registry.nodes.directory.directory import Directory
from registry.nodes.directory.events import NodeEvents
from registry.nodes.directory.freshness import Clocks, Freshness
from registry.store.protocol import NodeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """The settings of nodes: when they age, how much they may take, and which hosts are denied.

    `expected` is the file with the hosts that do not expire, None without one. `max_mib` and
    `changes_per_minute` are 0 for no limit; `warm_up` is in seconds.
    """

    freshness: Freshness
    max_mib: int = 0
    changes_per_minute: int = 0
    denied: Sequence[str] = ()
    expected: Path | None = None
    warm_up: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryContext:
    """Made once; each part takes what it needs from it. It has no methods."""

    store: NodeStore
    directory: Directory
    changes: NodeEvents
    settings: NodeRules
    clocks: Clocks
    log: FilteringBoundLogger
    metrics: CollectorRegistry
