"""The rules of the roll: who is taken in, who is still there, who is forgotten."""

import asyncio
from collections.abc import Callable

from msgspec import UNSET

from registry.message import Heartbeat, normalise_hostname
from registry.nodes.directory import (
    Directory,
    EncodedArray,
    Entry,
    body_digest,
    encode_document,
    entries_from_rows,
)
from registry.nodes.errors import (
    AGENT_ID,
    CloneRefused,
    HostnameMismatch,
    NodeNotFound,
    NotLoaded,
    check_clone,
)
from registry.nodes.events import REGISTRY, AuditCallback, EventCounts, HeartbeatResult, Source
from registry.nodes.filters import Filters
from registry.nodes.freshness import Freshness
from registry.prometheus.index import TargetIndex
from registry.store.protocol import Heard, NodeStore, Row, StoreFull, StoreUnavailable


class Nodes:
    """All nodes, as their hosts and operators know them.

    `clock` gives Unix time, and is shown; `monotonic` decides on ages. `audit` is told of each
    change once it is durable: what was done, to which host, by whom.
    """

    def __init__(
        self,
        *,
        store: NodeStore,
        directory: Directory,
        index: TargetIndex,
        freshness: Freshness,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        audit: AuditCallback,
    ) -> None:
        self._store = store
        self._directory = directory
        self._index = index
        self._freshness = freshness
        self._clock = clock
        self._monotonic = monotonic
        self._audit = audit
        self._last_flush = monotonic()
        self._unavailable_error: Exception | None = NotLoaded(
            "the nodes are still being read; ask again"
        )
        self._pending: dict[str, Entry | None] = {}
        self._touched: dict[str, None] = {}
        self.counts = EventCounts()

    async def load(self) -> None:
        """Read the store; until then every question is answered with NotLoaded.

        Raises StartError.
        """
        rows = await self._store.load()
        entries = await asyncio.to_thread(entries_from_rows, rows, self._monotonic())
        self._directory.fill(entries)
        for entry in entries:
            self._index.invalidate(entry)
        self._unavailable_error = None

    @property
    def unavailable_reason(self) -> str | None:
        """Tell why heartbeats are not taken at present, if so."""
        return str(self._unavailable_error) if self._unavailable_error else None

    def accept_unchanged(self, hostname: str, body: bytes, source: Source) -> bytes | None:
        """Take a heartbeat that is, byte for byte, the last one of a known host.

        Give the answer, or None for any other heartbeat: that one is to be recorded.
        """
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
        """Take a heartbeat; what it changes is durable when this returns the answer.

        Raises HostnameMismatch, CloneRefused, StoreUnavailable, NotLoaded.
        """
        try:
            result = self.accept(hostname, heartbeat, body, source, operator=operator)
        except CloneRefused:
            self.counts.clones += 1
            raise
        if result.durable is not None:
            await result.durable
        return result.response

    def accept(
        self, hostname: str, heartbeat: Heartbeat, body: bytes, source: Source, *, operator: bool
    ) -> HeartbeatResult:
        """Take a heartbeat; an operator may leave out the identity of a live host.

        Raises HostnameMismatch, CloneRefused, StoreUnavailable, NotLoaded.
        """
        self._require_loaded()
        if heartbeat.hostname is not UNSET and normalise_hostname(heartbeat.hostname) != hostname:
            raise HostnameMismatch(
                f"the body is of {heartbeat.hostname!a}, the path of {hostname!a}; send the"
                " hostname of the path, or none"
            )
        entry = Entry(
            hostname=hostname,
            document=encode_document(heartbeat),
            last_update=int(self._clock()),
            heard=self._monotonic(),
            address=source.address,
            digest=body_digest(body),
        )
        known = self._pending.get(hostname) or self._directory.get(hostname)
        if known is not None:
            self._check_clone(known, heartbeat, operator=operator)
        if known is not None and known.head == entry.head and hostname not in self._pending:
            self._update_address(known, entry)
            self._mark_heard(known)
            return HeartbeatResult(b"[%b]" % known.encoded())
        self._pending[hostname] = entry
        row = Row(*entry.row())
        durable = self._store.put(row, lambda error: self._on_put(entry, source, error))
        return HeartbeatResult(b"[%b]" % entry.encoded(), durable)

    def get(self, hostname: str) -> bytes:
        """Give one node, as an array. Raises NodeNotFound, StoreUnavailable, NotLoaded."""
        return b"[%b]" % self.entry(hostname).encoded()

    def entry(self, hostname: str) -> Entry:
        """Give what is known of a host. Raises NodeNotFound, StoreUnavailable, NotLoaded."""
        self.require_readable()
        entry = self._directory.get(hostname)
        if entry is None:
            raise NodeNotFound(f"no node {hostname} is known")
        return entry

    def list(self, filters: Filters) -> EncodedArray:
        """Give the nodes asked for, sorted. Raises StoreUnavailable, NotLoaded."""
        self.require_readable()
        if not filters:
            return self._directory.listing()
        return self._directory.select(filters.predicate(self._monotonic()))

    def require_readable(self) -> None:
        """See to it that what is read now is the truth. Raises StoreUnavailable, NotLoaded."""
        # With a full disk, what is in memory is still the whole truth.
        if self._unavailable_error is not None and not isinstance(
            self._unavailable_error, StoreFull
        ):
            raise self._unavailable_error
        self._drop_expired()

    async def delete(self, hostname: str, source: Source, *, agent_id: str | None = None) -> None:
        """Forget a host; where `agent_id` is given, only if no other identity holds the name.

        Raises NodeNotFound, CloneRefused, StoreUnavailable, NotLoaded.
        """
        self._require_loaded()
        if hostname in self._pending:
            known = self._pending[hostname]
        else:
            known = self._directory.get(hostname)
        if known is None:
            raise NodeNotFound(f"no node {hostname} is known")
        held = known.agent_id()
        if agent_id is not None and held is not None and held != agent_id:
            raise CloneRefused(f"{hostname} is the host with {AGENT_ID} {held!a} by now")
        self._pending[hostname] = None
        await self._store.delete(hostname, lambda error: self._on_deleted(hostname, source, error))

    async def flush(self) -> None:
        """Make durable who was heard of since the last time; try again what failed then.

        Now and then also that nobody was: a crash must not make silent hosts fresh again.
        """
        self._drop_expired()
        now = self._monotonic()
        due = (
            self._touched
            or self._unavailable_error
            or now - self._last_flush >= self._freshness.max_flush_interval
        )
        if isinstance(self._unavailable_error, NotLoaded) or not due:
            return
        self._last_flush = now
        touched, self._touched = self._touched, {}
        entries = [entry for name in touched if (entry := self._directory.get(name)) is not None]
        rows = [Heard(entry.hostname, entry.last_update, entry.address) for entry in entries]
        try:
            await self._store.touch(rows, self._update_availability)
        except StoreUnavailable:
            self._touched = touched | self._touched

    def stale_count(self) -> int:
        """Count the nodes that were not heard of for too long."""
        now = self._monotonic()
        count = 0
        for entry in self._directory:
            if not self._freshness.is_stale(entry.heard, now):
                break
            count += 1
        return count

    def _require_loaded(self) -> None:
        if isinstance(self._unavailable_error, NotLoaded):
            raise NotLoaded(*self._unavailable_error.args)

    def _check_clone(self, known: Entry, heartbeat: Heartbeat, *, operator: bool) -> None:
        now = self._monotonic()
        if not self._freshness.is_stale(known.heard, now):
            check_clone(known, heartbeat, seconds=now - known.heard, operator=operator)

    def _update_address(self, known: Entry, entry: Entry) -> None:
        known.digest = entry.digest
        if known.address != entry.address:
            known.address = entry.address
            self._index.address_changed(known)

    def _mark_heard(self, entry: Entry) -> None:
        self._touched[entry.hostname] = None
        self._directory.heard(entry, last_update=int(self._clock()), heard=self._monotonic())
        if self._unavailable_error is not None:
            # The host is alive and counts as such, but this cannot be made durable.
            self.counts.store_failures += 1
            raise self._unavailable_error
        self.counts.unchanged += 1

    def _on_put(self, entry: Entry, source: Source, error: Exception | None) -> None:
        if self._pending.get(entry.hostname) is entry:
            del self._pending[entry.hostname]
        self._update_availability(error)
        if error is not None:
            self.counts.store_failures += isinstance(error, StoreUnavailable)
            return
        if self._directory.put(entry, heard=self._monotonic()):
            self.counts.added += 1
            kind = "added"
        else:
            self.counts.changed += 1
            kind = "changed"
        self._index.invalidate(entry)
        self._audit(kind, entry.hostname, source)

    def _on_deleted(self, hostname: str, source: Source, error: Exception | None) -> None:
        if self._pending.get(hostname, hostname) is None:
            del self._pending[hostname]
        self._update_availability(error)
        if error is None:
            self._forget(hostname)
            self.counts.deleted += 1
            self._audit("deleted", hostname, source)

    def _forget(self, hostname: str) -> None:
        entry = self._directory.remove(hostname)
        self._touched.pop(hostname, None)
        if entry is not None:
            self._index.invalidate(entry)

    def _drop_expired(self) -> None:
        now = self._monotonic()
        expired = []
        for entry in self._directory:
            if not self._freshness.is_expired(entry.heard, now):
                break
            if entry.hostname not in self._pending:
                expired.append(entry.hostname)
        for hostname in expired:
            self._forget(hostname)
            self.counts.expired += 1
            self._audit("expired", hostname, REGISTRY)
            # Should this fail, it is read again at the next start, and expires again.
            self._store.delete(hostname, self._update_availability).add_done_callback(
                _retrieve_exception
            )

    def _update_availability(self, error: Exception | None) -> None:
        if error is None:
            self._unavailable_error = None
        elif isinstance(error, StoreUnavailable):
            self._unavailable_error = error


def _retrieve_exception(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
