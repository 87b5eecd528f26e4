"""How much heartbeats may take: memory, changes a minute, and the bytes of large ones."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from clients.message import MAX_BODY_BYTES
from registry.errors import ChangesTooFast, TooManyHeartbeats
from registry.nodes.acceptance.capacity import MIB, Capacity, Reservation, TargetCost
from registry.nodes.directory.directory import Entry, only_withdraws

MINUTE = 60.0
ROUNDING_SECONDS = 1e-6
# To decode a larger heartbeat, to encode it, or to check it, takes up to some milliseconds each.
MAX_BYTES_AT_ONCE = 48 * 1024
MAX_LARGE_BYTES = 32 * 1024 * 1024


class RateLimit:
    """A token bucket for each hostname: so much a minute, in bursts of that size.

    0 is no limit. Of each bucket only the time is kept at which it is full again; then it is
    dropped. So the memory is bounded by the hosts that took something within a minute.
    """

    def __init__(self, *, per_minute: int, steady: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._steady = steady
        # By hostname, the one that took something least recently first.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, hostname: str, amount: int = 1) -> float:
        """Take an amount and return 0, or return the seconds until it would be available.

        An amount of more than `per_minute` is never there.
        """
        if not self.per_minute:
            return 0.0
        now = self._steady()
        self._drop_full(now)
        full_at = max(self._full_at.get(hostname, now), now) + amount * MINUTE / self.per_minute
        missing = full_at - now - MINUTE - ROUNDING_SECONDS
        if missing > 0:
            return missing
        self._full_at[hostname] = full_at
        self._full_at.move_to_end(hostname)
        return 0.0

    def give_back(self, hostname: str) -> None:
        """Put back 1 that was taken."""
        if hostname in self._full_at:
            self._full_at[hostname] -= MINUTE / self.per_minute

    def _drop_full(self, now: float) -> None:
        """Drop up to two full buckets, so that each call drops more than it adds."""
        for _ in range(2):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]


class Limits:
    """The memory of all nodes, the changes of each one, and what large heartbeats cost.

    A node may change `changes_per_minute` times a minute, in bursts of that size. Of bodies over
    MAX_BYTES_AT_ONCE, a host may send that many times the largest body. A body with the same bytes
    as its last one does not count. A rejected heartbeat counts as well, so that it is not cheaper
    for its sender than an accepted one; a change that fails in the store does not, since the host
    is to send it again. 0 is no limit.
    """

    def __init__(
        self, *, capacity: Capacity, changes_per_minute: int, steady: Callable[[], float]
    ) -> None:
        self.capacity = capacity
        self._large_bytes = 0  # of the bodies that are being taken
        self._changes = RateLimit(per_minute=changes_per_minute, steady=steady)
        self._bytes = RateLimit(per_minute=changes_per_minute * MAX_BODY_BYTES, steady=steady)

    @contextmanager
    def room_for(self, body: bytes) -> Iterator[None]:
        """Have memory for a body while the context is open. Small ones always have it.

        Raises TooManyHeartbeats.
        """
        size = _counted_bytes(body)
        if size and self._large_bytes + size > MAX_LARGE_BYTES:
            raise TooManyHeartbeats(
                f"large heartbeats of {self._large_bytes // MIB} MiB are being taken at present;"
                " send it again soon"
            )
        self._large_bytes += size
        try:
            yield
        finally:
            self._large_bytes -= size

    def take_bytes(self, hostname: str, body: bytes) -> None:
        """Count a body that may differ from the host's last one, before it is decoded.

        Small ones cost nothing. Raises ChangesTooFast, and counts nothing, if the host has sent too
        many bytes.
        """
        size = _counted_bytes(body)
        seconds = self._bytes.take(hostname, size) if size else 0.0
        if seconds:
            raise ChangesTooFast(
                f"{hostname} sends more than {self._bytes.per_minute // MIB} MiB a minute of"
                f" different heartbeats over {MAX_BYTES_AT_ONCE // 1024} KiB"
                " (nodes.changes_per_minute x 1 MiB); one with the bytes of the last one is"
                " accepted",
                retry_after_seconds=math.ceil(seconds),
            )

    def reserve(
        self, entry: Entry, stored: Entry | None, targets: TargetCost | None = None
    ) -> Reservation:
        """Reserve memory for a new or changed node, and count the change; release it later.

        A change that only withdraws labels `serving:` does not count. `targets` are those of the
        entry, if they are known. Raises CapacityReached, ChangesTooFast.
        """
        before = stored.head if stored else None
        reservation = self.capacity.reserve(entry.hostname, entry.head, before, targets)
        if before is not None and only_withdraws(before, entry.head):
            return reservation
        try:
            self.take_change(entry.hostname)
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

    def take_change(self, hostname: str) -> None:
        """Count a change of a node. Raises ChangesTooFast, and counts nothing, if it is too many.

        The error says after how many seconds the next change is accepted.
        """
        seconds = self._changes.take(hostname)
        if seconds:
            raise ChangesTooFast(
                f"{hostname} changes more often than {self._changes.per_minute} times a minute"
                " (nodes.changes_per_minute); heartbeats that change nothing are accepted",
                retry_after_seconds=math.ceil(seconds),
            )

    def give_back_change(self, hostname: str) -> None:
        """Count a change of a node no longer."""
        self._changes.give_back(hostname)

    def count_change(self, hostname: str) -> None:
        """Count a change that another registry accepted, however often the node changes."""
        with suppress(ChangesTooFast):
            self.take_change(hostname)


def _counted_bytes(body: bytes) -> int:
    return len(body) if len(body) > MAX_BYTES_AT_ONCE else 0
