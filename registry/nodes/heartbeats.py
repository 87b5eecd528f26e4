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

# What `rollcall_registry_heartbeats_refused_total` counts, besides failures of the store.
COUNTED_REFUSALS = (CloneRejected, ChangesTooFast, CapacityReached)


@dataclass(slots=True)
class HeartbeatCounts:
    """Counts unchanged and refused heartbeats since the start. Changes are counted as events."""

    unchanged: int = 0
    store_failures: int = 0
    refused: Counter[type[Exception]] = field(default_factory=Counter)


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat: a JSON array of the node.

    It must not be sent before `durable` is done, which may raise StoreUnavailable. If `durable` is
    None, it can be sent at once.
    """

    response: bytes
    durable: asyncio.Future[None] | None = None


class _Received(NamedTuple):
    """A heartbeat, the node that it describes, and the targets of a large node."""

    heartbeat: Heartbeat
    source: Source
    operator: bool
    entry: KnownNode
    targets: TargetCost | None = None


class Heartbeats:
    """Accepts heartbeats by the rules, and applies what they change once it is durable.

    The `digest` of a heartbeat is the `body_digest` of its body.
    """

    def __init__(
        self,
        context: RegistryContext,
        writes: Writes,
        limits: Limits,
        clones: Clones,
        applied: Applied,
    ) -> None:
        self.limits = limits
        self._directory = context.directory
        self._wall, self._monotonic, _ = context.clocks
        self._writes = writes
        self._clones = clones
        self._applied = applied
        self.counts = HeartbeatCounts()

    def accept_unchanged(self, hostname: str, digest: bytes, source: Source) -> bytes | None:
        """Accept a heartbeat whose body has the same bytes as the host's last one.

        Return the answer, a JSON array of the node. Return None for any other heartbeat, which is
        for `accept` or `accept_durably`; nothing has changed then.

        Raises StoreUnavailable, NotLoaded.
        """
        if self._writes.unavailable_error is not None:
            self._writes.require_loaded()
        known = self._unchanged(hostname, digest, source)
        if known is None or not self._writes.is_up_to_date:
            return None
        return self._confirmation(known)

    async def accept_unchanged_later(
        self, hostname: str, digest: bytes, source: Source
    ) -> bytes | None:
        """Accept an unchanged heartbeat once all changes by other registries are known.

        Return the answer, a JSON array of the node. Return None for any other heartbeat, which is
        for `accept_durably`: until these changes are known, nobody can tell whether it may be
        rejected for good.

        Raises StoreUnavailable, NotLoaded.
        """
        self._writes.require_loaded()
        if self._writes.is_up_to_date:
            return None
        known = self._unchanged(hostname, digest, source)
        if known is not None:
            self._applied.report(known)  # it is alive, also if the store is out of reach
        try:
            await self._writes.catch_up()
        except StoreUnavailable:
            self.counts.store_failures += 1
            raise
        known = self._unchanged(hostname, digest, source)
        return None if known is None else self._confirmation(known)

    def _unchanged(self, hostname: str, digest: bytes, source: Source) -> KnownNode | None:
        """Return the node if it sent the same from the same address, and no change is pending."""
        known = self._directory.entries.get(hostname)
        if known is None or known.digest != digest or known.address != source.address:
            return None
        return None if hostname in self._writes.pending else known

    def _confirmation(self, known: KnownNode) -> bytes:
        """Record that a node reports; return the answer. Raises StoreUnavailable, counted."""
        self._applied.report(known)
        if self._writes.unavailable_error is not None:
            # The host is alive and counts as heard, but that cannot be made durable.
            self.counts.store_failures += 1
            raise self._writes.unavailable_error
        self.counts.unchanged += 1
        return b"[%b]" % known.encoded()

    def take_bytes(self, hostname: str, body: bytes) -> None:
        """Count a large body before it is decoded. Raises ChangesTooFast, which is counted."""
        with self._counted():
            self.limits.take_bytes(hostname, body)

    async def accept_durably(
        self,
        hostname: str,
        heartbeat: Heartbeat,
        digest: bytes,
        source: Source,
        *,
        operator: bool,
        is_large: bool,
    ) -> bytes:
        """Accept a heartbeat; return the answer once all that it changes is durable.

        It is for those that `accept_unchanged_later` leaves. A large one is encoded in a thread.

        Raises HostnameMismatch, StoreUnavailable, NotLoaded, and CloneRejected, ChangesTooFast and
        CapacityReached, which are counted.
        """
        if is_large:
            entry, targets = await asyncio.to_thread(
                self._prepare, hostname, heartbeat, digest, source
            )
            # Others may have come since the thread began.
            entry.last_update, entry.heard = int(self._wall()), self._monotonic()
        else:
            entry, targets = self._entry(hostname, heartbeat, digest, source), None
        with self._counted():
            result = self._accept(_Received(heartbeat, source, operator, entry, targets))
        if result.durable is not None:
            await result.durable
        return result.response

    def accept(
        self, hostname: str, heartbeat: Heartbeat, digest: bytes, source: Source, *, operator: bool
    ) -> HeartbeatResult:
        """Accept a heartbeat, and hand to the store what it changes; `is_up_to_date` must be true.

        An operator may leave out the identity of a host that has one. If this raises an error, the
        heartbeat has changed nothing, unless it is StoreUnavailable, ChangesTooFast or
        CapacityReached: then a host that is known counts as heard. So it does if the store takes no
        such node (NodeTooLarge).

        Raises HostnameMismatch, CloneRejected, ChangesTooFast, CapacityReached, StoreUnavailable,
        NotLoaded.
        """
        entry = self._entry(hostname, heartbeat, digest, source)
        return self._accept(_Received(heartbeat, source, operator, entry))

    def _prepare(
        self, hostname: str, heartbeat: Heartbeat, digest: bytes, source: Source
    ) -> tuple[KnownNode, TargetCost]:
        entry = self._entry(hostname, heartbeat, digest, source)
        return entry, target_cost_of(entry.head)

    def _entry(
        self, hostname: str, heartbeat: Heartbeat, digest: bytes, source: Source
    ) -> KnownNode:
        """Return the node that a heartbeat describes, heard of now.

        `hostname` is that of the path. Raises HostnameMismatch.
        """
        if heartbeat.hostname is not UNSET and normalise_hostname(heartbeat.hostname) != hostname:
            raise HostnameMismatch(
                f"the body is of {heartbeat.hostname!a}, the path of {hostname!a}; send the"
                " hostname of the path, or none"
            )
        return KnownNode(
            Row(hostname, encode_document(heartbeat), int(self._wall()), source.address),
            heard=self._monotonic(),
            digest=digest,
        )

    def _accept(self, received: _Received) -> HeartbeatResult:
        writes, entry = self._writes, received.entry
        if writes.unavailable_error is not None:
            writes.require_loaded()
        hostname = entry.hostname
        known = writes.pending.get(hostname) or self._directory.entries.get(hostname)
        if known is not None:
            self._check_identity(known, received)
        if known is not None and known.head == entry.head and hostname not in writes.pending:
            known.digest = entry.digest
            self._applied.move(known, entry.address, received.source)
            return HeartbeatResult(self._confirmation(known))
        reservation = self._reserve(received)
        durable = writes.put(
            entry,
            partial(self._on_put, received, reservation),
            partial(self._refusal, received, reservation),
        )
        return HeartbeatResult(b"[%b]" % entry.encoded(), durable)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count what is refused while the context is open."""
        try:
            yield
        except COUNTED_REFUSALS as error:
            self.counts.refused[type(error)] += 1
            raise

    def _check_identity(self, known: KnownNode, received: _Received) -> None:
        self._clones.check(known, received.heartbeat, received.source, operator=received.operator)

    def _refusal(self, received: _Received, reservation: Reservation) -> Exception | None:
        """Return why a heartbeat is refused, since another registry has changed the node."""
        known = self._directory.entries.get(received.entry.hostname)
        try:
            if known is not None:
                self._check_identity(known, received)
            self.limits.renew(received.entry, known, reservation)
        except (CloneRejected, CapacityReached) as error:
            return error
        return None

    def _reserve(self, received: _Received) -> Reservation:
        stored = self._directory.entries.get(received.entry.hostname)
        try:
            return self.limits.reserve(received.entry, stored, received.targets)
        except (ChangesTooFast, CapacityReached):
            self.note_alive(received.entry.hostname, received.heartbeat)
            raise

    def note_alive(self, hostname: str, heartbeat: Heartbeat) -> None:
        """Record that a known host reports, though its change is rejected."""
        stored = self._directory.entries.get(hostname)
        # Another host may take the name of a stale one, which is not alive by that.
        if stored is not None and stored.agent_id() == heartbeat.kv.get(AGENT_ID):
            self._applied.report(stored)

    def _on_put(
        self, received: _Received, reservation: Reservation, error: Exception | None
    ) -> None:
        self.limits.capacity.release(reservation)
        if error is None:
            changed = self._applied.put(received.entry, received.source, reservation)
            self.counts.unchanged += not changed
            return
        if not isinstance(error, CloneRejected):
            self.note_alive(received.entry.hostname, received.heartbeat)
        if isinstance(error, StoreUnavailable):
            self.counts.store_failures += 1
            self.limits.give_back_change(received.entry.hostname)
        if isinstance(error, COUNTED_REFUSALS):
            self.counts.refused[type(error)] += 1
