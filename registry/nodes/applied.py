"""Changes that the store has taken, own ones and those of others, applied to what is in memory."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange, Source
from registry.nodes.clones import Clones, DeniedHosts
from registry.nodes.context import RegistryContext
from registry.nodes.directory import FRESH, KnownNode, only_withdraws
from registry.nodes.limits import Limits, Reservation
from registry.nodes.writes import Writes
from registry.store.protocol import Heard, HeardBefore, Row

OTHER_REGISTRY = "another registry"
# Nodes that are seen within this time share one number, and those of one second one Unix time.
# With a number for each of a million nodes, each heartbeat would free one that is in no cache of
# the processor.
SAME_MOMENT_SECONDS = 0.001
# Reports reach other registries late, so smaller differences are ignored.
SAME_SECONDS = 5.0


class Applied:
    """Changes the directory, and publishes each change; nothing else does once nodes are loaded.

    It is the SharedNodes of the store: changes by other registries are applied like own ones.
    What the store has of denied hosts is followed as well, so that it is there once they are not.
    """

    def __init__(
        self,
        context: RegistryContext,
        writes: Writes,
        limits: Limits,
        clones: Clones,
        denied: DeniedHosts,
    ) -> None:
        self._directory = context.directory
        self._events = context.changes
        self._freshness = context.settings.freshness
        self._wall, self._monotonic, _ = context.clocks
        self._writes = writes
        self._limits = limits
        self._clones = clones
        self._denied = denied
        self._moment = self._monotonic()
        self._second = 0
        self._withheld: dict[str, KnownNode] = {}
        self._deleting: dict[str, KnownNode] = {}  # withheld nodes that are to go from the store

    def put(self, entry: KnownNode, source: Source, reservation: Reservation | None = None) -> bool:
        """Add or replace a node; return whether that changes it.

        One that is denied, which was on its way to the store at the time, is deleted there again.
        """
        if self._denied.patterns and entry.hostname in self._denied:
            self.withhold(entry)
            return True
        self._withheld.pop(entry.hostname, None)
        self._moment = self._monotonic()  # the node is not seen before it was stored
        known = self._directory.entries.get(entry.hostname)
        if known is not None and known.head == entry.head:
            known.digest = entry.digest or known.digest
            self.move(known, entry.address, source)
            self._mark_heard(known, entry.last_update)
            return False
        was_stale = known is not None and known.stage != FRESH
        head = None if known is None else known.head
        self._limits.capacity.replace(entry.hostname, entry.head, head, reservation)
        self._clones.note_change(known, entry)
        before = self._directory.put(entry, heard=self._moment)
        kind = ChangeKind.ADDED if before is None else ChangeKind.CHANGED
        node = known or entry
        self._events.publish(NodeChange(kind, node, source, before))
        if was_stale:
            self._events.publish(NodeChange(ChangeKind.FRESH, node, REGISTRY))
        return True

    def forget(self, hostname: str, kind: ChangeKind, source: Source) -> None:
        """Forget a node; nothing happens if it is unknown."""
        entry = self._directory.remove(hostname)
        if entry is not None:
            self._writes.discard_touch(entry)
            self._limits.capacity.forget(hostname, entry.head)
            self._clones.forget(hostname)
            self._events.publish(NodeChange(kind, entry, source))

    def withhold(self, entry: KnownNode) -> None:
        """Keep a node of a denied host out of sight until the store has deleted it."""
        hostname = entry.hostname
        row = entry.row()._replace(is_moved=entry.is_moved)
        withheld = KnownNode(row, heard=entry.heard, digest=entry.digest)
        self._withheld[hostname] = self._deleting[hostname] = withheld
        self._writes.expire(hostname, partial(self._note_deletion, withheld))

    def release(self, source: Source) -> Iterator[None]:
        """Show the nodes again that the store has, and that are denied no more."""
        for hostname in list(self._withheld):
            entry = self._withheld.get(hostname)
            if entry is not None and hostname not in self._denied:
                is_to_go = self._deleting.get(hostname) is entry
                if not is_to_go or self._writes.discard_expiry(hostname):
                    self._show(entry, source)
            yield

    def _note_deletion(self, entry: KnownNode, error: Exception | None) -> None:
        """Forget a withheld node, unless another registry has stored it meanwhile."""
        hostname = entry.hostname
        if self._deleting.get(hostname) is entry:
            del self._deleting[hostname]
        if self._withheld.get(hostname) is not entry:
            return
        if error is None:
            del self._withheld[hostname]
        elif hostname not in self._denied:
            self._show(entry, REGISTRY)

    def _show(self, entry: KnownNode, source: Source) -> None:
        """Add a withheld node, last seen when it was."""
        self._deleting.pop(entry.hostname, None)
        times = [(entry, entry.heard)]
        self.put(entry, source)
        self._directory.heard_before(times, self._stage_of_now())

    def report(self, entry: KnownNode) -> None:
        """Record that a host reports now, also if the store does not accept that now."""
        if not entry.is_touched:
            self._writes.touch(entry)
        second = int(self._wall())
        if second != self._second:
            self._second = second
        self._mark_heard(entry, self._second)

    def _mark_heard(self, entry: KnownNode, last_update: int) -> None:
        """Record that a node was seen now."""
        now = self._monotonic()
        if now - self._moment > SAME_MOMENT_SECONDS:
            self._moment = now
        if self._directory.heard(entry, last_update=last_update, heard=self._moment):
            self._events.publish(NodeChange(ChangeKind.FRESH, entry, REGISTRY))

    def move(self, entry: KnownNode, address: str, source: Source) -> None:
        """Record the address that a node posts from."""
        if entry.address != address:
            entry.address, entry.is_moved = address, True
            self._events.publish(NodeChange(ChangeKind.MOVED, entry, source))

    def stored(self, row: Row) -> None:
        """Take over a node that another registry stored; one that is denied here is withheld.

        To delete it there would only make the other registry store it again.
        """
        self._writes.discard_expiry(row.hostname)
        entry = KnownNode(row._replace(address=sys.intern(row.address)), heard=self._monotonic())
        if row.hostname in self._denied:
            self._withheld[row.hostname] = entry
            return
        known = self._directory.entries.get(row.hostname)
        is_free = known is not None and only_withdraws(known.head, entry.head)
        if self.put(entry, Source(OTHER_REGISTRY, row.address)):
            if not is_free:
                self._limits.changes.take(row.hostname)  # however often it changes
            node = self._directory.entries.get(row.hostname)
            if node is not None:  # what is unwritten was seen it before
                self._writes.discard_touch(node)

    def deleted(self, hostname: str, *, expired: bool) -> None:
        """Forget a node that another registry deleted, unless it is alive here."""
        self._withheld.pop(hostname, None)
        entry = self._directory.entries.get(hostname)
        if entry is None:
            return
        if not expired:
            self.forget(hostname, ChangeKind.DELETED, Source(OTHER_REGISTRY, "-"))
        elif self._freshness.is_stale(entry.heard, self._monotonic()):
            self.forget(hostname, ChangeKind.EXPIRED, REGISTRY)
        else:
            self._writes.touch(entry)

    def heard(self, heard: Sequence[Heard], *, own: bool) -> None:
        """Record which nodes were seen.

        Own reports come back, so that each registry shows the last one that the store took. A node
        keeps its own later report while that is not written yet.
        """
        for hostname, last_update, address in heard:
            entry = self._directory.entries.get(hostname)
            if entry is None:
                self._note_withheld(HeardBefore(hostname, last_update, address))
                continue
            if entry.is_touched:
                continue
            self.move(entry, sys.intern(address), Source(OTHER_REGISTRY, address))
            if own:
                self._directory.update_time(entry, last_update)
            else:
                self._mark_heard(entry, last_update)

    def heard_before(self, heard: Sequence[HeardBefore]) -> None:
        """Record when nodes were last seen elsewhere, where that is later than known here."""
        now = self._monotonic()
        times: list[tuple[KnownNode, float]] = []
        for one in heard:
            hostname, last_update, address, age = one
            entry = self._directory.entries.get(hostname)
            if entry is None:
                self._note_withheld(one)
                continue
            if entry.is_touched:
                continue
            if now - age > entry.heard + SAME_SECONDS:
                self._directory.update_time(entry, last_update)
                self.move(entry, sys.intern(address), Source(OTHER_REGISTRY, address))
                times.append((entry, now - age))
        for entry in self._directory.heard_before(times, self._stage_of_now()):
            self._events.publish(NodeChange(ChangeKind.FRESH, entry, REGISTRY))

    def _note_withheld(self, heard: HeardBefore) -> None:
        """Record when a node was last seen elsewhere whose host is denied here."""
        entry = self._withheld.get(heard.hostname)
        seen = self._monotonic() - heard.age
        if entry is not None and seen >= entry.heard:
            entry.heard, entry.last_update = seen, heard.last_update
            entry.is_moved |= entry.address != heard.address
            entry.address = sys.intern(heard.address)

    def _stage_of_now(self) -> Callable[[float], int]:
        return partial(self._freshness.stage_of, now=self._monotonic())

    def row(self, hostname: str) -> Row | None:
        """Return a node as it is in memory, with its age; None if it is unknown."""
        entry = self._directory.entries.get(hostname)
        return None if entry is None else entry.row()._replace(age=self._monotonic() - entry.heard)

    def ages(self, after: str) -> list[HeardBefore]:
        """Return the ages of the next nodes after a hostname, a few at a time; none at the end."""
        now = self._monotonic()
        return [_age(entry, now) for entry in self._directory.sorted.following(after)]

    def silent(self, seconds: float) -> Iterator[tuple[KnownNode, float]]:
        """Yield the nodes that were not seen for so long, with their ages; nodes may change.

        Only one such iterator may be in use.
        """
        for entry in self._directory.heard_until(self._monotonic() - seconds):
            yield entry, self._monotonic() - entry.heard

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._directory)

    @property
    def unwritten(self) -> int:
        """How many nodes were seen, and not handed to the store since."""
        return self._writes.touched


def _age(entry: KnownNode, now: float) -> HeardBefore:
    return HeardBefore(entry.hostname, entry.last_update, entry.address, now - entry.heard)
