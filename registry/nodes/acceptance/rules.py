"""Which heartbeats are refused: those of clones, of hosts that change too often, and too many."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from registry.errors import ChangesTooFast
from registry.nodes.acceptance.capacity import Capacity, Reservation, TargetCost
from registry.nodes.acceptance.change_limit import ChangeLimit
from registry.nodes.acceptance.clone_check import CloneCheck
from registry.nodes.acceptance.denied import DeniedHosts
from registry.nodes.acceptance.large_heartbeats import LargeHeartbeats
from registry.nodes.directory.directory import Entry
from registry.nodes.directory.freshness import Freshness


class Acceptance:
    """The rules by which a heartbeat is accepted, and what they have to remember of the nodes."""

    def __init__(
        self,
        *,
        freshness: Freshness,
        capacity: Capacity,
        change_limit: ChangeLimit,
        large: LargeHeartbeats,
        monotonic: Callable[[], float],
    ) -> None:
        self.denied = DeniedHosts()
        self.freshness = freshness
        self.large = large
        self.capacity = capacity
        self._change_limit = change_limit
        self.clone_check = CloneCheck(freshness=freshness, monotonic=monotonic)

    def reserve(
        self, entry: Entry, stored: Entry | None, targets: TargetCost | None = None
    ) -> Reservation:
        """Reserve memory for a new or changed node, and count the change; release it later.

        `targets` are those of the entry, if they are known. Raises CapacityReached, ChangesTooFast.
        """
        before = stored.head if stored else None
        reservation = self.capacity.reserve(entry.hostname, entry.head, before, targets)
        try:
            self._change_limit.take(entry.hostname)
        except ChangesTooFast:
            self.capacity.release(reservation)
            raise
        return reservation

    def renew(self, entry: Entry, stored: Entry | None, reservation: Reservation) -> None:
        """Reserve memory anew, since another registry has changed what a node replaces.

        Raises CapacityReached if there is not enough any more.
        """
        before = stored.head if stored else None
        self.capacity.renew(entry.hostname, entry.head, before, reservation)

    def count_change(self, hostname: str) -> None:
        """Count a change that another registry accepted, however often the node changes."""
        with suppress(ChangesTooFast):
            self._change_limit.take(hostname)

    def note_stored(
        self, before: Entry | None, after: Entry, reservation: Reservation | None
    ) -> None:
        """Record a node that was stored, right before the directory has it.

        Nothing was reserved for one that another registry accepted.
        """
        head = before.head if before else None
        self.capacity.replace(after.hostname, after.head, head, reservation)
        self.clone_check.note_change(before, after)

    def note_forgotten(self, entry: Entry) -> None:
        """Record a node that is gone."""
        self.capacity.forget(entry.hostname, entry.head)
        self.clone_check.forget(entry.hostname)

    def note_loaded(self, entries: Iterable[Entry]) -> None:
        """Record all nodes of the store."""
        self.capacity.fill((entry.hostname, entry.head) for entry in entries)
