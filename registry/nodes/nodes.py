"""All nodes: loaded, deleted, stale and expired."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from registry.errors import (
    IdentityMismatch,
    NodeFresh,
    NodeNotFound,
    NotLoaded,
    StoreFull,
    StoreUnreachable,
)
from registry.nodes.ages import Ages, ExpectedHosts
from registry.nodes.applied import Applied
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange, Source
from registry.nodes.clones import Clones, DeniedHosts
from registry.nodes.context import RegistryContext
from registry.nodes.directory import (
    AGENT_ID,
    KnownNode,
    abbreviated,
    entries_from_rows,
)
from registry.nodes.heartbeats import Heartbeats
from registry.nodes.limits import Limits
from registry.nodes.writes import Writes
from registry.responses.slices import TimeSlices
from registry.store.protocol import HEALTHY, Member, Row, StoreHealth, StorePosition, as_shared

STORE_STATES: tuple[tuple[type[Exception], str], ...] = (
    (NotLoaded, "loading"),
    (StoreFull, "full"),
    (StoreUnreachable, "unreachable"),
    (Exception, "failed"),
)
DENIED = Source("nodes.denied", "-")
# To forget a large node may take half a millisecond.
MAX_FORGET_SECONDS = 0.0005


class Nodes:
    """All nodes: in memory, where they are read, and in the store, where they are durable.

    Every change is published as an event once it has taken effect.
    """

    def __init__(self, context: RegistryContext, slices: TimeSlices) -> None:
        self._store = context.store
        self._shared = as_shared(context.store)
        self._slices = slices
        self.directory = context.directory
        self._events = context.changes
        self._monotonic = context.clocks.monotonic
        self.expected = ExpectedHosts(context)
        self.ages = Ages(context, self.expected, agree=lambda: not self.expected_elsewhere)
        context.changes.subscribe(self.ages.note_expired, [ChangeKind.EXPIRED])
        self.denied = DeniedHosts(context.settings.denied)
        self.writes = Writes(context)
        self.limits = Limits(context)
        clones = Clones(context)
        self._applied = Applied(context, self.writes, self.limits, clones, self.denied)
        self.heartbeats = Heartbeats(context, self.writes, self.limits, clones, self._applied)

    async def load(self) -> bool:
        """Read the store; return whether it continues what the last registry here left.

        Until then every other method raises NotLoaded. Raises StoreOpenError.
        """
        self._announce()
        rows, continues = await self._store.load()
        entries = await asyncio.to_thread(self._fill, rows, self._monotonic())
        await self._slices.run(self._publish_loaded(entries))
        self._store.follow(self._applied)
        self.writes.unavailable_error = None
        return continues

    def _announce(self) -> None:
        if self._shared is not None:
            self._shared.announce(denied=self.denied.digest, expected=self.expected.digest)

    async def expect(self, hosts: Mapping[str, bool], digest: str) -> None:
        """Expect these hosts from now on, and no others."""
        await self._slices.run(self.expected.replace(hosts, digest))
        self._announce()

    async def deny(self, patterns: Iterable[str]) -> None:
        """Deny these hosts from now on, and no others; forget those that are known.

        Those that are denied no more are listed again if the store has them.
        """
        self.denied.replace(patterns)
        self._announce()
        if not isinstance(self.writes.unavailable_error, NotLoaded):
            await self._slices.run(self._forget_denied())
            await self._slices.run(self._applied.release(DENIED))

    def _forget_denied(self) -> Iterator[None]:
        """Forget all nodes that are denied, in memory at once, and in the store soon."""
        last = ""
        while some := self.directory.sorted.following(last):
            for entry in some:
                if entry.hostname in self.denied:
                    self._applied.forget(entry.hostname, ChangeKind.DELETED, DENIED)
                    self._applied.withhold(entry)
            last = some[-1].hostname
            yield

    def _publish_loaded(self, entries: Iterable[KnownNode]) -> Iterator[None]:
        for entry in entries:
            self._events.publish(NodeChange(ChangeKind.LOADED, entry, REGISTRY))
            yield

    def _fill(self, rows: list[Row], now: float) -> list[KnownNode]:
        known = entries_from_rows(rows, now)
        rows.clear()  # here, since to free many of them takes long
        entries: list[KnownNode] = []
        for entry in known:
            if entry.hostname in self.denied:
                self._applied.withhold(entry)
            else:
                entries.append(entry)
        self.limits.capacity.fill((entry.hostname, entry.head) for entry in entries)
        self.directory.fill(entries)
        return entries

    @property
    def unavailable_reason(self) -> str | None:
        """Why heartbeats are not accepted at present, or None if they are."""
        error = self.writes.unavailable_error
        return str(error) if error else None

    @property
    def unhealthy_reason(self) -> str | None:
        """Why a load balancer is to send nobody here, or None.

        While the store is full, reads are complete: to lose the readers would help nobody.
        """
        is_full = isinstance(self.writes.unavailable_error, StoreFull)
        return None if is_full else self.unavailable_reason

    @property
    def is_store_shared(self) -> bool:
        """Whether several registries can use the store."""
        return self._shared is not None

    @property
    def members(self) -> Sequence[Member]:
        """The registries that share the store; none if only one can use it."""
        return () if self._shared is None else self._shared.members

    @property
    def denied_elsewhere(self) -> Sequence[str]:
        """The registries that share the store, but deny other hosts than this one."""
        digest, members = self.denied.digest, self.members
        return _named([each for each in members if not each.own and each.denied != digest], members)

    @property
    def expected_elsewhere(self) -> Sequence[str]:
        """The registries that share the store, but expect other hosts than this one."""
        digest, members = self.expected.digest, self.members
        different = [each for each in members if not each.own and each.expected != digest]
        return _named(different, members)

    @property
    def store_state(self) -> tuple[str, str]:
        """How the store is, and why: `ok`, `loading`, `full`, `unreachable`, `failed`, `at_risk`.

        In a store that is `full` or `unreachable`, reads go on from memory.
        """
        error = self.writes.unavailable_error
        if error is not None:
            return next(state for kind, state in STORE_STATES if isinstance(error, kind)), str(
                error
            )
        health = self.health
        if health.age:
            return "unreachable", health.problem
        return ("at_risk", health.risk) if health.risk else ("ok", "")

    async def delete(
        self,
        hostname: str,
        source: Source,
        *,
        agent_id: str | None = None,
        only_stale: bool = False,
    ) -> None:
        """Forget a host, durably. With `agent_id`, only if no other identity has the hostname.

        Raises NodeNotFound, IdentityMismatch, NodeFresh, StoreUnavailable, NotLoaded.
        """
        self.writes.require_loaded()
        if not self.writes.is_current:
            await self.writes.catch_up()
        if hostname in self.writes.pending:
            known = self.writes.pending[hostname]
        else:
            known = self.directory.entries.get(hostname)
        rejection = _deletion_rejection(hostname, known, agent_id, only_stale=only_stale)
        if rejection is not None:
            raise rejection
        await self.writes.delete(
            hostname,
            lambda error: self._on_deleted(hostname, source, error),
            lambda: _deletion_rejection(
                hostname, self.directory.entries.get(hostname), agent_id, only_stale=only_stale
            ),
        )

    @property
    def health(self) -> StoreHealth:
        """How the store is; one that is not shared is always healthy."""
        return HEALTHY if self._shared is None else self._shared.health

    def store_position(self) -> StorePosition | None:
        """Return up to which change of a shared store is in memory; None without an order."""
        return None if self._shared is None else self._shared.position

    @property
    def accepted(self) -> int:
        """How many heartbeats were accepted since the start."""
        counts = self._events.counts
        changed = counts[ChangeKind.ADDED] + counts[ChangeKind.CHANGED]
        return self.heartbeats.counts.unchanged + changed

    def state_counts(self) -> tuple[int, int]:
        """Return how many nodes are fresh, and how many are stale."""
        self.update_some_ages()
        fresh = len(self.directory.fresh)
        return fresh, len(self.directory) - fresh

    def update_some_ages(self) -> bool:
        """Mark some nodes as stale, forget some expired ones; return whether there were any.

        It takes about a millisecond at most. While changes by other registries may be missing,
        nothing happens. Nodes that are due and stay are no reason to ask again.
        """
        if isinstance(self.writes.unavailable_error, NotLoaded) or self.health.age:
            return False
        silent, any_moved = self.ages.advance_some()
        for entry in silent:
            self._events.publish(NodeChange(ChangeKind.STALE, entry, REGISTRY))
        if any_moved:
            return True
        expired = self.ages.expiring(self.writes.pending)
        end = time.thread_time() + MAX_FORGET_SECONDS
        for entry in expired:
            self._applied.forget(entry.hostname, ChangeKind.EXPIRED, REGISTRY)
            self.writes.expire(entry.hostname)
            if time.thread_time() >= end:
                break
        return bool(expired)

    def _on_deleted(self, hostname: str, source: Source, error: Exception | None) -> None:
        if error is None:
            self._applied.forget(hostname, ChangeKind.DELETED, source)


def _named(some: Sequence[Member], members: Sequence[Member]) -> list[str]:
    """Return the names of some members; those on one host share it, so their run is named, too."""
    names = Counter(each.name for each in members)
    return [
        each.name if names[each.name] == 1 else f"{each.name} (run {each.run})" for each in some
    ]


def _deletion_rejection(
    hostname: str, known: KnownNode | None, agent_id: str | None, *, only_stale: bool
) -> Exception | None:
    """Return why a node cannot be deleted; with `agent_id`, another identity must not have it."""
    if known is None:
        return NodeNotFound(f"no node {hostname} is known")
    if only_stale and not known.is_stale:
        return NodeFresh(f"{hostname} reports, so it is kept; without `stale`, DELETE forgets it")
    held = None if agent_id is None else known.text(AGENT_ID)
    if held in (None, agent_id):
        return None
    return IdentityMismatch(f"{hostname} is now the host with {AGENT_ID} {abbreviated(held)}")
