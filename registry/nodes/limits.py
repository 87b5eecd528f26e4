"""How much heartbeats may take: memory, changes a minute, and the bytes of large ones."""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from clients.message import MAX_BODY_BYTES
from registry.errors import CapacityReached, ChangesTooFast, TooManyHeartbeats
from registry.nodes.context import RegistryContext
from registry.nodes.directory import END_OF_LABELS, KnownNode, only_withdraws

MIB = 1024 * 1024
# Measured, as the growth of the process.
NODE_BYTES = 720  # a node, without its text
BYTES_PER_BYTE = 2.7  # a byte of the text, which is held encoded and in answers
TARGET_LABEL_BYTES = 26  # a label of a target, without its text
GROUP_BYTES = 160  # a target group
OFFER_BYTES = 320  # a service of one node
SERVICE_BYTES = 850  # a service, however many nodes offer it
KEPT_BYTES = 300  # the kept targets of a large node
KEPT_SERVICE_BYTES = 60  # each service of these
# The targets of a larger node are kept: to compute them again would take up to some milliseconds.
MAX_UNKEPT_BYTES = 8 * 1024

MARK = b'"prometheus:'
# What follows in such a label. A class of one character is searched for at the speed of memchr.
_LABEL = re.compile(MARK + rb'([^"]*)"')
ESCAPES = ((rb"\\", b"\0\0"), (rb"\"", b"\0\1"))
MINUTE = 60.0
ROUNDING_SECONDS = 1e-6
# To decode a larger heartbeat, to encode it, or to check it, takes up to some milliseconds each.
MAX_BYTES_AT_ONCE = 48 * 1024
MAX_LARGE_BYTES = 32 * 1024 * 1024


class TargetCost(NamedTuple):
    """What the labels of targets add to the cost of a node, and the services that they name.

    The cost includes that of the targets themselves where they are kept.
    """

    cost: int
    services: tuple[bytes, ...]


@dataclass(slots=True)
class Reservation:
    """Bytes that are reserved for a change of a node, and what was computed for that.

    `before` is the node that is to be replaced, `targets` are those before and after the change;
    both are empty if the labels of a small node stay as they are. `Capacity.renew` changes it.
    """

    size: int
    before: bytes | None
    targets: tuple[TargetCost, TargetCost]


NO_TARGETS = TargetCost(0, ())


def target_cost_of(node: bytes) -> TargetCost:
    """Return what the labels of an encoded node add."""
    targets, labels = NO_TARGETS, node[: node.rindex(END_OF_LABELS)]
    if MARK in labels:
        if b"\\" in labels:
            for escape, replacement in ESCAPES:  # by bytes that no JSON holds
                labels = labels.replace(escape, replacement)
        # A label is prometheus:SERVICE@INSTANCE:KEY:VALUE.
        groups, services, cost = set[bytes](), dict[bytes, None](), 0
        for label in _LABEL.findall(labels):
            group = label.partition(b":")[0]
            cost += TARGET_LABEL_BYTES + len(label) - len(group)
            if group not in groups:
                groups.add(group)
                services[group.partition(b"@")[0]] = None
        cost += GROUP_BYTES * len(groups) + OFFER_BYTES * len(services)
        targets = TargetCost(cost, tuple(services))
    if len(node) <= MAX_UNKEPT_BYTES:
        return targets
    kept = KEPT_BYTES + KEPT_SERVICE_BYTES * len(targets.services)
    return TargetCost(targets.cost + kept + sum(map(len, targets.services)), targets.services)


def _known_targets(node: bytes, reservation: Reservation) -> TargetCost | None:
    """Return the targets of a node that a reservation knows, if they are kept."""
    return reservation.targets[1] if len(node) > MAX_UNKEPT_BYTES else None


def _labels(encoded: bytes) -> bytes:
    """Return a node up to the end of its labels."""
    return encoded[: encoded.rindex(END_OF_LABELS)]


class Capacity:
    """The memory that all nodes take, as estimated, and its bound (0: none).

    Nodes are given as JSON. What was reserved for nodes that are not stored yet counts, until it is
    released. `store_bytes` returns what the store takes for them.
    """

    def __init__(self, max_mib: int = 0, store_bytes: Callable[[], int] = lambda: 0) -> None:
        self._max_mib = max_mib
        self._store_bytes = store_bytes
        self._nodes = 0
        self._text = 0
        self._targets = 0
        self._reserved = 0
        # How many nodes offer each service; to delete from a Counter takes ten times as long.
        self._services: dict[bytes, int] = {}
        self._kept: dict[str, TargetCost] = {}  # of large nodes, by hostname
        self._from_reserve: dict[str, int] = {}  # what nodes have grown by in the last fifth

    @property
    def max_bytes(self) -> int | None:
        """The bound, None if there is none."""
        return self._max_mib * MIB or None

    @property
    def used_bytes(self) -> int:
        """The estimated memory of all nodes."""
        text = self._nodes * NODE_BYTES + int(self._text * BYTES_PER_BYTE)
        services = SERVICE_BYTES * len(self._services)
        return text + self._targets + services + self._reserved + self._store_bytes()

    def reserve(
        self, hostname: str, node: bytes, before: bytes | None, targets: TargetCost | None = None
    ) -> Reservation:
        """Reserve what a new or changed node takes more than before.

        `targets` are those of the node, if they are known.

        Raises CapacityReached if there is no room. A node that does not grow may always change.
        """
        changed = self._changed_targets(hostname, node, before, targets)
        growth = self._growth(node, before, changed)
        if growth <= 0:
            return Reservation(0, before, changed)
        if self._max_mib and not self._has_room(hostname, growth, is_known=before is not None):
            raise CapacityReached(
                f"the registry's nodes take four fifths of {self._max_mib} MiB, their bound"
                " (nodes.max_mib), or more; nodes that are known and grow little are accepted."
                " Delete nodes, or raise the bound together with the memory that the registry may"
                " take"
            )
        self._reserved += growth
        return Reservation(growth, before, changed)

    def release(self, reservation: Reservation) -> None:
        """Release what was reserved, since the node was stored or rejected."""
        self._reserved -= reservation.size

    def renew(
        self, hostname: str, node: bytes, before: bytes | None, reservation: Reservation
    ) -> None:
        """Reserve what a node takes more than the one that it replaces by now.

        Since room was reserved, other registries may have changed that one, and taken the room.

        Raises CapacityReached if it would pass the bound; the reservation stays as it is then.
        """
        self.release(reservation)
        try:
            renewed = self.reserve(hostname, node, before, _known_targets(node, reservation))
        except CapacityReached:
            self._reserved += reservation.size
            raise
        reservation.size = renewed.size
        reservation.before = renewed.before
        reservation.targets = renewed.targets

    def replace(
        self, hostname: str, node: bytes, before: bytes | None, reservation: Reservation | None
    ) -> None:
        """Count a node as it is now instead of as it was; None if it is new.

        With the `reservation` for this change, next to nothing is computed twice.
        """
        if reservation is None:
            changed = self._changed_targets(hostname, node, before, None)
        elif reservation.before is before:
            changed = reservation.targets
        else:
            known = _known_targets(node, reservation)
            changed = self._changed_targets(hostname, node, before, known)
        if self._max_mib:
            self._note_growth(hostname, self._growth(node, before, changed))
        self._count(hostname, node, before, changed)

    def forget(self, hostname: str, before: bytes) -> None:
        """Count a node no longer."""
        old = self._kept.pop(hostname, None)
        self._from_reserve.pop(hostname, None)
        self._nodes -= 1
        self._text -= len(before)
        self._replace_targets(target_cost_of(before) if old is None else old, NO_TARGETS)

    def fill(self, nodes: Iterable[tuple[str, bytes]]) -> None:
        """Count all nodes of a store, by hostname, even if they pass the bound."""
        for hostname, node in nodes:
            self._count(hostname, node, None, (NO_TARGETS, target_cost_of(node)))

    def _has_room(self, hostname: str, growth: int, *, is_known: bool) -> bool:
        """Return whether a node may grow.

        The last fifth is kept for nodes that are known, each of which may have an equal share. So
        a key that fills the registry, or makes many nodes, leaves room for changes of all others.
        """
        bound = self._max_mib * MIB
        used = self.used_bytes + growth
        if used <= bound - bound // 5:
            return True
        grown = self._from_reserve.get(hostname, 0) + growth
        return is_known and used <= bound and grown <= bound // 5 // self._nodes

    def _note_growth(self, hostname: str, growth: int) -> None:
        """Count what a node takes of the last fifth, while that is in use."""
        bound = self._max_mib * MIB
        if self.used_bytes + max(growth, 0) <= bound - bound // 5:
            self._from_reserve.clear()
        elif growth > 0 or hostname in self._from_reserve:
            self._from_reserve[hostname] = max(0, self._from_reserve.get(hostname, 0) + growth)

    def _changed_targets(
        self, hostname: str, node: bytes, before: bytes | None, targets: TargetCost | None
    ) -> tuple[TargetCost, TargetCost]:
        """Return the targets before and after a change; the same if the labels are.

        `targets` are those after it, if they are known.
        """
        if before is None:
            return NO_TARGETS, target_cost_of(node) if targets is None else targets
        old = self._kept.get(hostname)
        if targets is None:
            is_as_large = (old is not None) == len(node) > MAX_UNKEPT_BYTES
            if is_as_large and _labels(node) == _labels(before):
                same = NO_TARGETS if old is None else old
                return same, same
            targets = target_cost_of(node)
        return target_cost_of(before) if old is None else old, targets

    def _growth(
        self, node: bytes, before: bytes | None, targets: tuple[TargetCost, TargetCost]
    ) -> int:
        old, new = targets
        growth = int((len(node) - len(before or b"")) * BYTES_PER_BYTE) + new.cost - old.cost
        if before is None:
            growth += NODE_BYTES
        if old.services == new.services:  # those of the node before are counted
            return growth
        return growth + SERVICE_BYTES * sum(
            service not in self._services for service in new.services
        )

    def _count(
        self,
        hostname: str,
        node: bytes,
        before: bytes | None,
        targets: tuple[TargetCost, TargetCost],
    ) -> None:
        self._nodes += before is None
        self._text += len(node) - len(before or b"")
        if len(node) > MAX_UNKEPT_BYTES:
            self._kept[hostname] = targets[1]
        else:
            self._kept.pop(hostname, None)
        self._replace_targets(*targets)

    def _replace_targets(self, old: TargetCost, new: TargetCost) -> None:
        self._targets += new.cost - old.cost
        if old.services == new.services:
            return
        services = self._services
        for service in new.services:
            services[service] = services.get(service, 0) + 1
        for service in old.services:
            count = services.get(service, 0) - 1
            if count > 0:
                services[service] = count
            else:
                services.pop(service, None)


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

    def __init__(self, context: RegistryContext) -> None:
        settings, steady = context.settings, context.clocks.steady
        changes_per_minute = settings.changes_per_minute
        self.capacity = Capacity(settings.max_mib, lambda: context.store.memory_bytes)
        self._large_bytes = 0  # of the bodies that are being taken
        self.changes = RateLimit(per_minute=changes_per_minute, steady=steady)
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
        self, entry: KnownNode, stored: KnownNode | None, targets: TargetCost | None = None
    ) -> Reservation:
        """Reserve memory for a new or changed node, and count the change; release it later.

        A change that only withdraws labels `serving:` does not count. `targets` are those of the
        entry, if they are known. Raises CapacityReached, ChangesTooFast.
        """
        before = stored.head if stored else None
        reservation = self.capacity.reserve(entry.hostname, entry.head, before, targets)
        if before is not None and only_withdraws(before, entry.head):
            return reservation
        seconds = self.changes.take(entry.hostname)
        if seconds:
            self.capacity.release(reservation)
            raise ChangesTooFast(
                f"{entry.hostname} changes more often than {self.changes.per_minute} times a minute"
                " (nodes.changes_per_minute); heartbeats that change nothing are accepted",
                retry_after_seconds=math.ceil(seconds),
            )
        return reservation

    def renew(self, entry: KnownNode, stored: KnownNode | None, reservation: Reservation) -> None:
        """Reserve memory anew, since another registry has changed what a node replaces.

        Raises CapacityReached if there is not enough any more.
        """
        before = stored.head if stored else None
        self.capacity.renew(entry.hostname, entry.head, before, reservation)


def _counted_bytes(body: bytes) -> int:
    return len(body) if len(body) > MAX_BYTES_AT_ONCE else 0
