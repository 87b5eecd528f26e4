"""The rules: which heartbeats are accepted, when a node is durable, when it is forgotten."""

import asyncio
import time
from collections.abc import Iterable, Iterator

from registry.answers.time_slices import TimeSlices
from registry.errors import (
    CapacityReached,
    ChangesTooFast,
    CloneRefused,
    NodeNotFound,
    NotLoaded,
    StoreFull,
    StoreUnavailable,
)
from registry.message import Heartbeat
from registry.nodes.acceptance.capacity import Reservation, Targets, targets_of
from registry.nodes.acceptance.rules import Acceptance
from registry.nodes.directory import (
    AGENT_ID,
    Directory,
    Entry,
    body_digest,
    entries_from_rows,
)
from registry.nodes.events import REGISTRY, Change, ChangeKind, NodeEvents, Source
from registry.nodes.freshness import Clocks
from registry.nodes.heartbeats import HeartbeatCounts, HeartbeatResult, received_entry
from registry.store.deferred import DeferredWrites
from registry.store.protocol import Heard, NodeStore, Row

# To decode a larger heartbeat, to encode it, or to check it, takes up to some milliseconds each.
MAX_BYTES_AT_ONCE = 48 * 1024
# To forget a large node may take half a millisecond.
MAX_FORGET_SECONDS = 0.0005


class Nodes:
    """All nodes: in memory, where they are read, and in the store, where they are durable.

    Every change is published as an event once it has taken effect.
    """

    def __init__(
        self,
        *,
        store: NodeStore,
        directory: Directory,
        events: NodeEvents,
        acceptance: Acceptance,
        clocks: Clocks,
    ) -> None:
        self._store = store
        self._directory = directory
        self._events = events
        self._acceptance = acceptance
        self._freshness = acceptance.freshness
        self._clocks = clocks
        self._wall, self._monotonic = clocks
        self._unavailable_error: Exception | None = NotLoaded(
            "the nodes are still being read; ask again"
        )
        # What was given to the store and is not durable yet: the node, or None for a deletion.
        self._pending: dict[str, Entry | None] = {}
        self._deferred = DeferredWrites(
            store, heard=self._heard, done=self._update_availability, monotonic=clocks.monotonic
        )
        self.counts = HeartbeatCounts()

    async def load(self, slices: TimeSlices) -> None:
        """Read the store. Until then every other method raises NotLoaded.

        Raises StoreOpenError.
        """
        rows = await self._store.load()
        entries = await asyncio.to_thread(self._fill, rows, self._monotonic())
        await slices.run(self._publish_loaded(entries))
        self._unavailable_error = None

    def _publish_loaded(self, entries: Iterable[Entry]) -> Iterator[None]:
        for entry in entries:
            self._events.publish(Change(ChangeKind.LOADED, entry, REGISTRY))
            yield

    def _fill(self, rows: list[Row], now: float) -> list[Entry]:
        entries = entries_from_rows(rows, now)
        rows.clear()  # here, since to free many of them takes long
        self._acceptance.note_loaded(entries)
        self._directory.fill(entries)
        return entries

    @property
    def unavailable_reason(self) -> str | None:
        """Why heartbeats are not accepted at present, or None if they are."""
        return str(self._unavailable_error) if self._unavailable_error else None

    def accept_unchanged(self, hostname: str, body: bytes, source: Source) -> bytes | None:
        """Accept a heartbeat whose body has the same bytes as the host's last one.

        Return the answer, a JSON array of the node. Return None for any other heartbeat, which is
        for `accept` or `accept_durably`; nothing has changed then.

        Raises StoreUnavailable, NotLoaded.
        """
        self._require_loaded()
        entry = self._directory.get(hostname)
        if (
            entry is None
            or entry.address != source.address
            or hostname in self._pending
            or entry.digest != body_digest(body)
        ):
            return None
        self._mark_heard(entry)
        return b"[%b]" % entry.encoded()

    async def accept_durably(
        self, hostname: str, heartbeat: Heartbeat, body: bytes, source: Source, *, operator: bool
    ) -> bytes:
        """Accept a heartbeat; return the answer once all that it changes is durable.

        Raises HostnameMismatch, StoreUnavailable, NotLoaded, and CloneRefused, ChangesTooFast and
        CapacityReached, which are counted.
        """
        if len(body) > MAX_BYTES_AT_ONCE:
            entry, targets = await asyncio.to_thread(
                self._prepare, hostname, heartbeat, body, source
            )
            # Others may have come since the thread began.
            entry.last_update, entry.heard = int(self._wall()), self._monotonic()
        else:
            entry = received_entry(hostname, heartbeat, body, source, self._clocks)
            targets = None
        try:
            result = self._accept(entry, heartbeat, source, operator=operator, targets=targets)
        except (CloneRefused, ChangesTooFast, CapacityReached) as error:
            self.counts.refused[type(error)] += 1
            raise
        if result.durable is not None:
            await result.durable
        return result.response

    def _prepare(
        self, hostname: str, heartbeat: Heartbeat, body: bytes, source: Source
    ) -> tuple[Entry, Targets]:
        entry = received_entry(hostname, heartbeat, body, source, self._clocks)
        return entry, targets_of(entry.head)

    def accept(
        self, hostname: str, heartbeat: Heartbeat, body: bytes, source: Source, *, operator: bool
    ) -> HeartbeatResult:
        """Accept a heartbeat, and hand to the store what it changes.

        An operator may leave out the identity of a host that has one. If this raises an error, the
        heartbeat has changed nothing, unless it is StoreUnavailable, ChangesTooFast or
        CapacityReached: then a host that is known counts as heard.

        Raises HostnameMismatch, CloneRefused, ChangesTooFast, CapacityReached, StoreUnavailable,
        NotLoaded.
        """
        entry = received_entry(hostname, heartbeat, body, source, self._clocks)
        return self._accept(entry, heartbeat, source, operator=operator)

    def _accept(
        self,
        entry: Entry,
        heartbeat: Heartbeat,
        source: Source,
        *,
        operator: bool,
        targets: Targets | None = None,
    ) -> HeartbeatResult:
        self._require_loaded()
        hostname = entry.hostname
        known = self._pending.get(hostname) or self._directory.get(hostname)
        if known is not None:
            self._acceptance.check_identity(known, heartbeat, source, operator=operator)
        if known is not None and known.head == entry.head and hostname not in self._pending:
            self._update_address(known, entry, source)
            self._mark_heard(known)
            return HeartbeatResult(b"[%b]" % known.encoded())
        reservation = self._reserve(entry, targets)
        self._pending[hostname] = entry
        self._deferred.discard_expiry(hostname)
        durable = self._store.put(
            entry.row(), lambda error: self._on_put(entry, source, reservation, error)
        )
        return HeartbeatResult(b"[%b]" % entry.encoded(), durable)

    def _reserve(self, entry: Entry, targets: Targets | None) -> Reservation:
        stored = self._directory.get(entry.hostname)
        try:
            return self._acceptance.reserve(entry, stored, targets)
        except (ChangesTooFast, CapacityReached):
            if stored is not None:  # it is alive, and must not be forgotten
                self._note_heard(stored)
            raise

    def require_readable(self) -> None:
        """Raise if reads are not possible; StoreFull allows them.

        Raises StoreUnavailable, NotLoaded.
        """
        if self._unavailable_error is not None and not isinstance(
            self._unavailable_error, StoreFull
        ):
            raise self._unavailable_error

    async def delete(self, hostname: str, source: Source, *, agent_id: str | None = None) -> None:
        """Forget a host, durably. With `agent_id`, only if no other identity has the hostname.

        Raises NodeNotFound, CloneRefused, StoreUnavailable, NotLoaded.
        """
        self._require_loaded()
        if hostname in self._pending:
            known = self._pending[hostname]
        else:
            known = self._directory.get(hostname)
        if known is None:
            raise NodeNotFound(f"no node {hostname} is known")
        held = None if agent_id is None else known.agent_id()
        if held not in (None, agent_id):
            raise CloneRefused(f"{hostname} is the host with {AGENT_ID} {held!a} by now")
        self._pending[hostname] = None
        await self._store.delete(hostname, lambda error: self._on_deleted(hostname, source, error))

    async def flush(self) -> None:
        """Make durable which nodes were heard of since the last call.

        If there were none, write now and then all the same: after a crash, ages go on from the
        last write. While the store is unavailable, each call tries it again.
        """
        if not isinstance(self._unavailable_error, NotLoaded):
            await self._deferred.flush(
                max_interval=self._freshness.max_flush_interval,
                retry=self._unavailable_error is not None,
            )

    async def delete_expired(self) -> None:
        """Delete expired nodes from the store, some at a time.

        If this fails, the next start reads the node again, and it expires again.
        """
        await self._deferred.delete_expired()

    @property
    def used_bytes(self) -> int:
        """The estimated memory of all nodes."""
        return self._acceptance.used_bytes

    def state_counts(self) -> tuple[int, int]:
        """Return how many nodes are fresh, and how many are stale."""
        self.update_some_ages()
        return len(self._directory.fresh()), len(self._directory.stale())

    def update_some_ages(self) -> bool:
        """Mark some nodes as stale, forget some expired ones; return whether there were any.

        It takes about a millisecond at most.
        """
        if isinstance(self._unavailable_error, NotLoaded):
            return False
        now = self._monotonic()
        silent = self._directory.fresh().oldest(lambda entry: self._is_stale(entry, now))
        for entry in silent:
            self._directory.mark_stale(entry)
            self._events.publish(Change(ChangeKind.STALE, entry, REGISTRY))
        expired = self._directory.stale().oldest(lambda entry: self._is_expired(entry, now))
        end = time.thread_time() + MAX_FORGET_SECONDS
        for entry in expired:
            self._forget(entry.hostname, ChangeKind.EXPIRED, REGISTRY)
            self._deferred.expire(entry.hostname)
            if time.thread_time() >= end:
                break
        return bool(silent or expired)

    def _is_stale(self, entry: Entry, now: float) -> bool:
        freshness = self._freshness
        return freshness.is_stale(entry.heard, now) or freshness.is_expired(entry.heard, now)

    def _is_expired(self, entry: Entry, now: float) -> bool | None:
        """Return None where a change of the node is on its way to the store."""
        if not self._freshness.is_expired(entry.heard, now):
            return False
        return None if entry.hostname in self._pending else True

    def _require_loaded(self) -> None:
        if isinstance(self._unavailable_error, NotLoaded):
            raise NotLoaded(*self._unavailable_error.args)

    def _update_address(self, known: Entry, entry: Entry, source: Source) -> None:
        known.digest = entry.digest
        if known.address != entry.address:
            known.address = entry.address
            self._events.publish(Change(ChangeKind.MOVED, known, source))

    def _heard(self, hostname: str) -> Heard | None:
        entry = self._directory.get(hostname)
        return None if entry is None else Heard(hostname, entry.last_update, entry.address)

    def _note_heard(self, entry: Entry) -> None:
        self._deferred.touch(entry.hostname)
        if self._directory.heard(entry, last_update=int(self._wall()), heard=self._monotonic()):
            self._events.publish(Change(ChangeKind.FRESH, entry, REGISTRY))

    def _mark_heard(self, entry: Entry) -> None:
        self._note_heard(entry)
        if self._unavailable_error is not None:
            # The host is alive and counts as heard, but that cannot be made durable.
            self.counts.store_failures += 1
            raise self._unavailable_error
        self.counts.unchanged += 1

    def _on_put(
        self, entry: Entry, source: Source, reservation: Reservation, error: Exception | None
    ) -> None:
        self._acceptance.release(reservation)
        if self._pending.get(entry.hostname) is entry:
            del self._pending[entry.hostname]
        self._update_availability(error)
        if error is not None:
            self.counts.store_failures += isinstance(error, StoreUnavailable)
            return
        known = self._directory.get(entry.hostname)
        was_stale = known is not None and self._directory.is_stale(known)
        self._acceptance.note_stored(known, entry, reservation)
        before = self._directory.put(entry, heard=self._monotonic())
        kind = ChangeKind.ADDED if before is None else ChangeKind.CHANGED
        node = known or entry
        self._events.publish(Change(kind, node, source, before))
        if was_stale:
            self._events.publish(Change(ChangeKind.FRESH, node, REGISTRY))

    def _on_deleted(self, hostname: str, source: Source, error: Exception | None) -> None:
        if self._pending.get(hostname, hostname) is None:
            del self._pending[hostname]
        self._update_availability(error)
        if error is None:
            self._forget(hostname, ChangeKind.DELETED, source)

    def _forget(self, hostname: str, kind: ChangeKind, source: Source) -> None:
        entry = self._directory.remove(hostname)
        self._deferred.discard_touch(hostname)
        if entry is not None:
            self._acceptance.note_forgotten(entry)
            self._events.publish(Change(kind, entry, source))

    def _update_availability(self, error: Exception | None) -> None:
        if error is None:
            self._unavailable_error = None
        elif isinstance(error, StoreUnavailable):
            self._unavailable_error = error
