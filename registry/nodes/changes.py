"""The one stream of changes of nodes, its subscribers, and the log of who changed what."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from registry.nodes.directory import KnownNode

# journald drops what exceeds the unit's LogRateLimitBurst. So a second has this many lines of one
# change, and further changes share a line for each kind at its end, or when there are many of them.
# journald splits a line at 48 KiB.
MAX_SINGLE_LINES = 10
MAX_NODES_PER_WRITE = 800
PERIOD_SECONDS = 1.0


class ChangeKind(StrEnum):
    """What became of a node."""

    LOADED = "loaded"  # read from the store at the start
    ADDED = "added"
    CHANGED = "changed"  # other labels or kv
    MOVED = "moved"  # the same labels and kv, posted from another address
    STALE = "stale"  # not seen for a while
    FRESH = "fresh"  # seen again, after it was stale
    DELETED = "deleted"
    EXPIRED = "expired"


class Source(NamedTuple):
    """Who caused a change: the name of the key, and the address that the request came from."""

    caller: str
    address: str


class NodeChange(NamedTuple):
    """What happened to a node.

    `node` is as it is now, or as it was if it is gone. `before` is the encoded node that it
    replaced, up to `last_update`, where it was added or changed; None if there was none.
    """

    kind: ChangeKind
    node: KnownNode
    source: Source
    before: bytes | None = None


REGISTRY = Source("registry", "-")
ALL_KINDS = frozenset(ChangeKind)
Subscriber = Callable[[NodeChange], None]


class NodeChanges:
    """Publishes each change of a node to the subscribers of its kind.

    Order: `publish` calls the subscribers on the event loop, in the order in which they
    subscribed, and returns when all have returned. Changes are published in the order in which
    they take effect, each right after the directory has it and before the next one.

    Delivery: each change is published once. Additions, changes and deletions are durable by then,
    and the client has no answer yet; an expiry and a new address become durable soon after.
    Nothing is kept for later subscribers. A heartbeat that changes nothing is not
    published, so it costs nothing here.

    `counts` are how many of each kind were published.

    A subscriber returns quickly and changes no node. If it raises an exception, that is logged as
    a defect, and the other subscribers are called all the same.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.counts: Counter[ChangeKind] = Counter()
        self._log = log
        self._subscribers: dict[ChangeKind, list[Subscriber]] = {kind: [] for kind in ChangeKind}

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[ChangeKind] = ALL_KINDS) -> None:
        """Call `subscriber` with each change of these kinds from now on."""
        for kind in kinds:
            self._subscribers[kind].append(subscriber)

    def publish(self, change: NodeChange) -> None:
        """Call the subscribers of a change."""
        self.counts[change.kind] += 1
        for subscriber in self._subscribers[change.kind]:
            try:
                subscriber(change)
            except Exception as error:
                self._log.error(
                    "defect", change=change.kind, node=change.node.hostname, exc_info=error
                )


AUDITED_KINDS = (ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.DELETED, ChangeKind.EXPIRED)


class AuditLog:
    """Logs changes of nodes; its method `record` subscribes to the kinds in AUDITED_KINDS.

    Call `flush` at the end, so that no change is left out.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._period: asyncio.TimerHandle | None = None
        self._single_lines = 0
        self._waiting: list[tuple[ChangeKind, str, Source]] = []

    def record(self, change: NodeChange) -> None:
        """Log a change, at once or within a second."""
        if self._period is None:
            loop = asyncio.get_running_loop()
            self._period = loop.call_later(PERIOD_SECONDS, self.flush)
            self._single_lines = 0
        kind, hostname, source = change.kind, change.node.hostname, change.source
        if self._single_lines < MAX_SINGLE_LINES:
            self._single_lines += 1
            self._log.info(
                f"node {kind}", node=hostname, caller=source.caller, remote=source.address
            )
            return
        self._waiting.append((kind, hostname, source))
        if len(self._waiting) >= MAX_NODES_PER_WRITE:
            self._write_waiting()

    def flush(self) -> None:
        """Log the changes that wait for the end of the second."""
        if self._period is not None:
            self._period.cancel()
            self._period = None
        self._write_waiting()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        changes: dict[ChangeKind, list[str]] = {}
        for kind, hostname, (caller, address) in waiting:
            changes.setdefault(kind, []).append(f"{hostname} by {caller} from {address}")
        for kind, nodes in changes.items():
            self._log.info(f"nodes {kind}", count=len(nodes), nodes=nodes)
