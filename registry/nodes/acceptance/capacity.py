"""How much memory all nodes may take."""

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from registry.errors import CapacityReached

MIB = 1024 * 1024
# Measured, as the growth of the process: what a node costs beside its text, what each byte of the
# text costs (it is held encoded, in answers, and with the allocator's waste), each label of a
# target beside its text, each target group, each service that a node offers, and each service
# however many nodes offer it.
NODE_BYTES = 600
BYTES_PER_BYTE = 2.7
TARGET_LABEL_BYTES = 16
GROUP_BYTES = 160
OFFER_BYTES = 300
SERVICE_BYTES = 850

MARK = b'"prometheus:'
_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)


class Cost(NamedTuple):
    """The bytes that a node takes by itself, and the services that it offers."""

    own: int
    services: AbstractSet[bytes]


NOTHING = Cost(0, frozenset())


class Reservation(NamedTuple):
    """Bytes that are reserved for a change: the node as it was then, what it cost, and will."""

    growth: int
    before: bytes | None
    cost_before: Cost
    cost_after: Cost


def cost_of(encoded: bytes) -> Cost:
    """Return what a node costs; `encoded` is its JSON."""
    own = NODE_BYTES + int(len(encoded) * BYTES_PER_BYTE)
    _, *parts = encoded.split(MARK)
    if not parts:
        return Cost(own, frozenset())
    groups = set()
    for part in parts:  # of a label prometheus:SERVICE@INSTANCE:KEY:VALUE
        group, _, key = _string(part).partition(b":")
        groups.add(group)
        own += TARGET_LABEL_BYTES + len(key)
    services = {group.partition(b"@")[0] for group in groups}
    return Cost(own + GROUP_BYTES * len(groups) + OFFER_BYTES * len(services), services)


def _string(encoded: bytes) -> bytes:
    """Return what comes before the end of a string, encoded."""
    text = encoded[: encoded.index(b'"')]
    if b"\\" not in text:
        return text
    found = _STRING.match(encoded)
    assert found is not None, "it may be empty"
    return found[0]


class Capacity:
    """The memory that all nodes take, as estimated, and its bound (0: none).

    What was reserved for nodes that are not stored yet counts, until it is released.
    """

    def __init__(self, *, max_mib: int) -> None:
        self._max_mib = max_mib
        self._nodes = 0
        self._reserved = 0
        self._services: Counter[bytes] = Counter()

    @property
    def used_bytes(self) -> int:
        """The estimated memory of all nodes."""
        return self._nodes + self._reserved + SERVICE_BYTES * len(self._services)

    def reserve(self, encoded: bytes, before: bytes | None) -> Reservation:
        """Reserve what a new or changed node takes more than before.

        Raises CapacityReached if that would pass the bound. A node that does not grow may always
        change.
        """
        cost, cost_before = cost_of(encoded), cost_of(before) if before else NOTHING
        growth = cost.own - cost_before.own
        growth += SERVICE_BYTES * sum([service not in self._services for service in cost.services])
        if self._max_mib and growth > 0 and self.used_bytes + growth > self._max_mib * MIB:
            raise CapacityReached(
                f"the registry's nodes take {self._max_mib} MiB, which is its bound"
                " (nodes.max_mib); nodes that are known and do not grow are accepted. Delete nodes,"
                " or raise the bound together with the memory that the registry may take"
            )
        reservation = Reservation(max(0, growth), before, cost_before, cost)
        self._reserved += reservation.growth
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Release what was reserved, since the node is stored, or was refused, by now."""
        self._reserved -= reservation.growth

    def store(self, reservation: Reservation, before: bytes | None) -> None:
        """Count a node as it was reserved instead of as it is now, if it is known."""
        if before is not None:
            same = before is reservation.before
            self._remove(reservation.cost_before if same else cost_of(before))
        self._add(reservation.cost_after)

    def forget(self, encoded: bytes) -> None:
        """Count a node no longer."""
        self._remove(cost_of(encoded))

    def fill(self, nodes: Iterable[bytes]) -> None:
        """Count all nodes of a store, even if they pass the bound."""
        for encoded in nodes:
            self._add(cost_of(encoded))

    def _add(self, cost: Cost) -> None:
        self._nodes += cost.own
        for service in cost.services:
            self._services[service] += 1

    def _remove(self, cost: Cost) -> None:
        self._nodes -= cost.own
        for service in cost.services:
            self._services[service] -= 1
            if not self._services[service]:
                del self._services[service]
