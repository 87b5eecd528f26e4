"""The rules: which heartbeats are accepted, when a node is durable, when it is forgotten."""

import asyncio
import time
from collections.abc import Iterable, Iterator

from registry.errors import (
    CapacityReached,
    ChangesTooFast,
    CloneRefused,
    NodeNotFound,
    NotLoaded,
    StoreFull,
    StoreUnavailable,
    StoreUnreachable,
)
from registry.message import Heartbeat
from registry.nodes.acceptance.capacity import Reservation, Targets, targets_of
from registry.nodes.acceptance.large_heartbeats import MAX_BYTES_AT_ONCE
from registry.nodes.acceptance.rules import Acceptance
from registry.nodes.changes import AppliedChanges
from registry.nodes.directory.directory import (
    AGENT_ID,
    Directory,
    Entry,
    body_digest,
    entries_from_rows,
)
from registry.nodes.directory.events import REGISTRY, Change, ChangeKind, NodeEvents, Source
from registry.nodes.directory.freshness import Clocks
from registry.nodes.heartbeats import HeartbeatCounts, HeartbeatResult, received_entry
from registry.responses.time_slices import TimeSlices
from registry.store.deferred_writes import DeferredWrites
from registry.store.protocol import Heard, NodeStore, Row

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
        self._applied = AppliedChanges(
            directory=directory,
            events=events,
            acceptance=acceptance,
            deferred=self._deferred,
            monotonic=clocks.monotonic,
        )
        self.counts = HeartbeatCounts()

    async def load(self, slices: TimeSlices) -> None:
        """Read the store. Until then every other method raises NotLoaded.

        Raises StoreOpenError.
        """
        rows = await self._store.load()
        entries = await asyncio.to_thread(self._fill, rows, self._monotonic())
        await slices.run(self._publish_loaded(entries))
        self._store.follow(self._applied)
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

    def known_hostname(self, name: str) -> str | None:
        """Return a hostname if it is known in this spelling, the normal one; else None."""
        entry = self._directory.get(name)
        return None if entry is None else entry.hostname

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
            or not self._store.is_up_to_date
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
        is_up_to_date: bool = False,
    ) -> HeartbeatResult:
        self._require_loaded()
        hostname = entry.hostname
        known = self._pending.get(hostname) or self._directory.get(hostname)
        if known is not None:
            self._acceptance.check_identity(known, heartbeat, source, operator=operator)
        if known is not None and known.head == entry.head and hostname not in self._pending:
            if is_up_to_date or self._store.is_up_to_date:
                self._update_address(known, entry, source)
                self._mark_heard(known)
                return HeartbeatResult(b"[%b]" % known.encoded())
            self._note_heard(known)  # it is alive, also if the store is out of reach
            accepted = self._accept_later(
                entry, heartbeat, source, operator=operator, targets=targets
            )
            return HeartbeatResult(b"[%b]" % entry.encoded(), asyncio.ensure_future(accepted))
        reservation = self._reserve(entry, targets)
        self._pending[hostname] = entry
        self._deferred.discard_expiry(hostname)
        durable = self._store.put(
            entry.row(),
            lambda error: self._on_put(entry, source, reservation, error),
            lambda: self._refusal(entry, heartbeat, source, reservation, operator=operator),
        )
        return HeartbeatResult(b"[%b]" % entry.encoded(), durable)

    async def _accept_later(
        self,
        entry: Entry,
        heartbeat: Heartbeat,
        source: Source,
        *,
        operator: bool,
        targets: Targets | None,
    ) -> None:
        """Accept a heartbeat that changes nothing here, once all changes by others are known."""
        try:
            await self._store.catch_up()
        except StoreUnavailable as error:
            self.counts.store_failures += 1
            self._update_availability(error)
            raise
        self._update_availability(None)
        try:
            result = self._accept(
                entry,
                heartbeat,
                source,
                operator=operator,
                targets=targets,
                is_up_to_date=True,
            )
        except (CloneRefused, ChangesTooFast, CapacityReached) as error:
            self.counts.refused[type(error)] += 1
            raise
        if result.durable is not None:
            await result.durable

    def _refusal(
        self,
        entry: Entry,
        heartbeat: Heartbeat,
        source: Source,
        reservation: Reservation,
        *,
        operator: bool,
    ) -> Exception | None:
        """Return why a heartbeat is refused, since another registry has changed the node."""
        known = self._directory.get(entry.hostname)
        try:
            if known is not None:
                self._acceptance.check_identity(known, heartbeat, source, operator=operator)
            self._acceptance.check_capacity(entry, known, reservation)
        except (CloneRefused, CapacityReached) as error:
            return error
        return None

    def _reserve(self, entry: Entry, targets: Targets | None) -> Reservation:
        stored = self._directory.get(entry.hostname)
        try:
            return self._acceptance.reserve(entry, stored, targets)
        except (ChangesTooFast, CapacityReached):
            if stored is not None:  # it is alive, and must not be forgotten
                self._note_heard(stored)
            raise

    def require_readable(self) -> None:
        """Raise if reads are not possible; StoreFull and StoreUnreachable allow them.

        Raises StoreUnavailable, NotLoaded.
        """
        error = self._unavailable_error
        if error is not None and not isinstance(error, StoreFull | StoreUnreachable):
            raise error

    async def delete(self, hostname: str, source: Source, *, agent_id: str | None = None) -> None:
        """Forget a host, durably. With `agent_id`, only if no other identity has the hostname.

        Raises NodeNotFound, CloneRefused, StoreUnavailable, NotLoaded.
        """
        self._require_loaded()
        if hostname in self._pending:
            known = self._pending[hostname]
        else:
            known = self._directory.get(hostname)
        refusal = _deletion_refusal(hostname, known, agent_id)
        if refusal is not None:
            raise refusal
        self._pending[hostname] = None
        await self._store.delete(
            hostname,
            lambda error: self._on_deleted(hostname, source, error),
            lambda: _deletion_refusal(hostname, self._directory.get(hostname), agent_id),
        )

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

    @property
    def store_age(self) -> float:
        """Seconds for which changes by other registries may be missing; 0 if none is."""
        return self._store.age

    @property
    def store_risk(self) -> str:
        """Why a loss of power may lose what was acknowledged; empty if nothing tells of that."""
        return self._store.risk

    def state_counts(self) -> tuple[int, int]:
        """Return how many nodes are fresh, and how many are stale."""
        self.update_some_ages()
        return len(self._directory.fresh()), len(self._directory.stale())

    def update_some_ages(self) -> bool:
        """Mark some nodes as stale, forget some expired ones; return whether there were any.

        It takes about a millisecond at most. While changes by other registries may be missing,
        nothing happens.
        """
        if isinstance(self._unavailable_error, NotLoaded) or self._store.age:
            return False
        now = self._monotonic()
        silent = self._directory.fresh().oldest(lambda entry: self._is_stale(entry, now))
        for entry in silent:
            self._directory.mark_stale(entry)
            self._events.publish(Change(ChangeKind.STALE, entry, REGISTRY))
        expired = self._directory.stale().oldest(lambda entry: self._is_expired(entry, now))
        end = time.thread_time() + MAX_FORGET_SECONDS
        for entry in expired:
            self._applied.forget(entry.hostname, ChangeKind.EXPIRED, REGISTRY)
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
        self._applied.move(known, entry.address, source)

    def _heard(self, hostname: str) -> Heard | None:
        entry = self._directory.get(hostname)
        return None if entry is None else Heard(hostname, entry.last_update, entry.address)

    def _note_heard(self, entry: Entry) -> None:
        self._deferred.touch(entry.hostname)
        self._applied.mark_heard(entry, last_update=int(self._wall()))

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
        if error is None:
            self.counts.unchanged += not self._applied.put(entry, source, reservation)
        else:
            self.counts.store_failures += isinstance(error, StoreUnavailable)
            if isinstance(error, CloneRefused | CapacityReached):
                self.counts.refused[type(error)] += 1

    def _on_deleted(self, hostname: str, source: Source, error: Exception | None) -> None:
        if self._pending.get(hostname, hostname) is None:
            del self._pending[hostname]
        self._update_availability(error)
        if error is None:
            self._applied.forget(hostname, ChangeKind.DELETED, source)

    def _update_availability(self, error: Exception | None) -> None:
        if error is None:
            self._unavailable_error = None
        elif isinstance(error, StoreUnavailable):
            self._unavailable_error = error


def _deletion_refusal(hostname: str, known: Entry | None, agent_id: str | None) -> Exception | None:
    """Return why a node cannot be deleted; with `agent_id`, another identity must not have it."""
    if known is None:
        return NodeNotFound(f"no node {hostname} is known")
    held = None if agent_id is None else known.agent_id()
    if held in (None, agent_id):
        return None
    return CloneRefused(f"{hostname} is now the host with {AGENT_ID} {held!a}")
