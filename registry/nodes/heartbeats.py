"""Heartbeats: which are accepted, what they change, and when that is durable."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec import UNSET

from clients.message import Heartbeat, normalise_hostname
from registry.errors import (
    CapacityReached,
    ChangesTooFast,
    CloneRejected,
    HostnameMismatch,
    StoreUnavailable,
)
from registry.nodes.applied import Applied
from registry.nodes.changes import Source
from registry.nodes.clones import Clones
from registry.nodes.context import RegistryContext
from registry.nodes.directory import AGENT_ID, KnownNode, encode_document
from registry.nodes.limits import Limits, Reservation, TargetCost, target_cost_of
from registry.nodes.writes import Writes
from registry.store.protocol import Row

# What `rollcall_registry_heartbeats_rejected_total` counts, besides failures of the store.
COUNTED_REJECTIONS = (CloneRejected, ChangesTooFast, CapacityReached)


@dataclass(slots=True)
class HeartbeatCounts:
    """Counts unchanged and rejected heartbeats since the start. Changes are counted as events."""

    unchanged: int = 0
    store_failures: int = 0
    rejected: Counter[type[Exception]] = field(default_factory=Counter)


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat: a JSON array of the node.

    It must not be sent before `durable` is done, which may raise StoreUnavailable. If `durable` is
    None, it can be sent at once.
    """

    response: bytes
    durable: asyncio.Future[None] | None = None


class Report(NamedTuple):
    """Who sends a heartbeat of which host; `digest` is that of the body.

    An `operator` may leave out the identity of a host that has one.
    """

    hostname: str
    digest: bytes
    source: Source
    operator: bool


class _Received(NamedTuple):
    """A heartbeat, the node that it describes, and the targets of a large node."""

    report: Report
    heartbeat: Heartbeat
    node: KnownNode
    targets: TargetCost | None = None


class Heartbeats:
    """Accepts heartbeats by the rules, and applies what they change once it is durable."""

    def __init__(
        self,
        context: RegistryContext,
        writes: Writes,
        limits: Limits,
        clones: Clones,
        applied: Applied,
    ) -> None:
        self.limits = limits
        self._nodes = context.directory.entries
        self._wall, self._monotonic, _ = context.clocks
        self._writes = writes
        self._clones = clones
        self._applied = applied
        self.counts = HeartbeatCounts()

    def accept_unchanged(self, report: Report) -> bytes | None:
        """Accept a heartbeat whose body has the same bytes as the host's last one.

        Return the answer, a JSON array of the node. Return None for any other heartbeat, which is
        for `accept` or `accept_durably`; nothing has changed then.

        Raises StoreUnavailable, NotLoaded.
        """
        writes = self._writes
        if writes.unavailable_error is not None:
            writes.require_loaded()
        known = self._unchanged(report)
        if known is None or not (writes.shared is None or writes.shared.is_current):
            return None
        return self._confirm(known)

    async def accept_unchanged_later(self, report: Report) -> bytes | None:
        """Accept an unchanged heartbeat once all changes by other registries are known.

        Return the answer, a JSON array of the node. Return None for any other heartbeat, which is
        for `accept_durably`: until these changes are known, nobody can tell whether it may be
        rejected for good.

        Raises StoreUnavailable, NotLoaded.
        """
        self._writes.require_loaded()
        if self._writes.is_current:
            return None
        known = self._unchanged(report)
        if known is not None:
            self._applied.report(known)  # it is alive, also if the store is out of reach
        try:
            await self._writes.catch_up()
        except StoreUnavailable:
            self.counts.store_failures += 1
            raise
        known = self._unchanged(report)
        return None if known is None else self._confirm(known)

    def _unchanged(self, report: Report) -> KnownNode | None:
        """Return the node if it sent the same from the same address, and no change is pending."""
        hostname, digest, source, _ = report
        known = self._nodes.get(hostname)
        if known is None or known.digest != digest or known.address != source.address:
            return None
        return None if hostname in self._writes.pending else known

    def _confirm(self, known: KnownNode) -> bytes:
        """Record that a node reports; return the answer. Raises StoreUnavailable, counted."""
        self._applied.report(known)
        if self._writes.unavailable_error is not None:
            # The host is alive and counts as heard, but that cannot be made durable.
            self.counts.store_failures += 1
            raise self._writes.unavailable_error
        self.counts.unchanged += 1
        return b"[%b%d}]" % (known.head, known.last_update)

    def take_bytes(self, hostname: str, body: bytes) -> None:
        """Count a large body before it is decoded. Raises ChangesTooFast, which is counted."""
        with self._counted():
            self.limits.take_bytes(hostname, body)

    async def accept_durably(
        self, report: Report, heartbeat: Heartbeat, *, is_large: bool
    ) -> bytes:
        """Accept a heartbeat; return the answer once all that it changes is durable.

        It is for those that `accept_unchanged_later` leaves. A large one is encoded in a thread.

        Raises HostnameMismatch, StoreUnavailable, NotLoaded, and CloneRejected, ChangesTooFast and
        CapacityReached, which are counted.
        """
        targets = None
        if is_large:
            node, targets = await asyncio.to_thread(self._large_node, report, heartbeat)
            # Others may have come since the thread began.
            node.last_update, node.heard = int(self._wall()), self._monotonic()
        else:
            node = self._node(report, heartbeat)
        with self._counted():
            result = self._accept(_Received(report, heartbeat, node, targets))
        if result.durable is not None:
            await result.durable
        return result.response

    def accept(self, report: Report, heartbeat: Heartbeat) -> HeartbeatResult:
        """Accept a heartbeat, and hand to the store what it changes; `is_current` must be true.

        If this raises an error, the heartbeat has changed nothing, unless it is StoreUnavailable,
        ChangesTooFast or CapacityReached: then a host that is known counts as heard. So it does if
        the store takes no such node (NodeTooLarge).

        Raises HostnameMismatch, CloneRejected, ChangesTooFast, CapacityReached, StoreUnavailable,
        NotLoaded.
        """
        return self._accept(_Received(report, heartbeat, self._node(report, heartbeat)))

    def _large_node(self, report: Report, heartbeat: Heartbeat) -> tuple[KnownNode, TargetCost]:
        node = self._node(report, heartbeat)
        return node, target_cost_of(node.head)

    def _node(self, report: Report, heartbeat: Heartbeat) -> KnownNode:
        """Return the node that a heartbeat describes, seen now. Raises HostnameMismatch."""
        hostname, named = report.hostname, heartbeat.hostname
        if named is not UNSET and normalise_hostname(named) != hostname:
            raise HostnameMismatch(
                f"the body is of {named!a}, the path of {hostname!a}; send the hostname of the"
                " path, or none"
            )
        row = Row(hostname, encode_document(heartbeat), int(self._wall()), report.source.address)
        return KnownNode(row, heard=self._monotonic(), digest=report.digest)

    def _accept(self, received: _Received) -> HeartbeatResult:
        writes, (report, heartbeat, node, targets) = self._writes, received
        if writes.unavailable_error is not None:
            writes.require_loaded()
        hostname = report.hostname
        stored, pending = self._nodes.get(hostname), writes.pending.get(hostname)
        known = pending or stored
        if known is not None:
            self._clones.check(known, heartbeat, report.source, operator=report.operator)
        if known is not None and known.head == node.head and hostname not in writes.pending:
            known.digest = node.digest
            self._applied.move(known, node.address, report.source)
            return HeartbeatResult(self._confirm(known))
        try:
            reservation = self.limits.reserve(node, stored, targets)
        except (ChangesTooFast, CapacityReached):
            self.note_alive(hostname, heartbeat)
            raise
        durable = writes.put(
            node,
            partial(self._on_put, received, reservation),
            partial(self._rejection, received, reservation),
        )
        return HeartbeatResult(b"[%b%d}]" % (node.head, node.last_update), durable)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count what is rejected while the context is open."""
        try:
            yield
        except COUNTED_REJECTIONS as error:
            self.counts.rejected[type(error)] += 1
            raise

    def _rejection(self, received: _Received, reservation: Reservation) -> Exception | None:
        """Return why a heartbeat is rejected, since another registry has changed the node."""
        report, heartbeat, node, _ = received
        known = self._nodes.get(report.hostname)
        try:
            if known is not None:
                self._clones.check(known, heartbeat, report.source, operator=report.operator)
            self.limits.renew(node, known, reservation)
        except (CloneRejected, CapacityReached) as error:
            return error
        return None

    def note_alive(self, hostname: str, heartbeat: Heartbeat) -> None:
        """Record that a known host reports, though its change is rejected."""
        stored = self._nodes.get(hostname)
        # Another host may take the name of a stale one, which is not alive by that.
        if stored is not None and stored.text(AGENT_ID) == heartbeat.kv.get(AGENT_ID):
            self._applied.report(stored)

    def _on_put(
        self, received: _Received, reservation: Reservation, error: Exception | None
    ) -> None:
        report, heartbeat, node, _ = received
        self.limits.capacity.release(reservation)
        if error is None:
            changed = self._applied.put(node, report.source, reservation)
            self.counts.unchanged += not changed
            return
        if not isinstance(error, CloneRejected):
            self.note_alive(report.hostname, heartbeat)
        if isinstance(error, StoreUnavailable):
            self.counts.store_failures += 1
            self.limits.changes.give_back(report.hostname)
        if isinstance(error, COUNTED_REJECTIONS):
            self.counts.rejected[type(error)] += 1
