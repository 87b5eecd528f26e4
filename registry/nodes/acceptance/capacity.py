"""The bound on the memory that all nodes take together."""

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
NODE_BYTES = 660
BYTES_PER_BYTE = 2.7
TARGET_LABEL_BYTES = 26
GROUP_BYTES = 160
OFFER_BYTES = 320
SERVICE_BYTES = 850

MARK = b'"prometheus:'
END_OF_LABELS = b'],"kv":{'
# What follows in such a label. A class of one character is searched for at the speed of memchr.
_LABEL = re.compile(MARK + rb'([^"]*)"')
ESCAPES = ((rb"\\", b"\0\0"), (rb"\"", b"\0\1"))


class Targets(NamedTuple):
    """What the labels of targets add to the cost of a node, and the services that they name."""

    cost: int
    services: AbstractSet[bytes]


class Reservation(NamedTuple):
    """Bytes that are reserved for a change of a node, and what was computed for that.

    `before` is the node that is to be replaced, `targets` are those before and after the change;
    both are empty if the labels stay as they are.
    """

    size: int
    before: bytes | None
    targets: tuple[Targets, Targets]


NO_TARGETS = Targets(0, frozenset())
NO_CHANGE = (NO_TARGETS, NO_TARGETS)


def targets_of(node: bytes) -> Targets:
    """Return what the labels of an encoded node add."""
    return _targets(_labels(node))


def _targets(labels: bytes) -> Targets:
    if MARK not in labels:
        return NO_TARGETS
    if b"\\" in labels:
        for escape, replacement in ESCAPES:  # by bytes that no JSON holds
            labels = labels.replace(escape, replacement)
    # A label is prometheus:SERVICE@INSTANCE:KEY:VALUE.
    found = _LABEL.findall(labels)
    names = [label.partition(b":")[0] for label in found]
    groups = set(names)
    services = frozenset([group.partition(b"@")[0] for group in groups])
    cost = TARGET_LABEL_BYTES * len(found) + sum(map(len, found)) - sum(map(len, names))
    return Targets(cost + GROUP_BYTES * len(groups) + OFFER_BYTES * len(services), services)


def _changed_targets(
    before: bytes | None, node: bytes | None, targets: Targets | None = None
) -> tuple[Targets, Targets]:
    """Return the targets before and after a change; nothing if the labels are the same.

    `targets` are those after it, if they are known.
    """
    labels_before = b"" if before is None else _labels(before)
    labels = b"" if node is None else _labels(node)
    if labels == labels_before:
        return NO_CHANGE
    return _targets(labels_before), _targets(labels) if targets is None else targets


def _labels(encoded: bytes) -> bytes:
    """Return a node up to the end of its labels; no string can hold what ends them.

    It is searched for from the end, since many labels take longer to count than large kv.
    """
    return encoded[: encoded.rindex(END_OF_LABELS)]


class Capacity:
    """The memory that all nodes take, as estimated, and its bound (0: none).

    Nodes are given as JSON. What was reserved for nodes that are not stored yet counts, until it is
    released.
    """

    def __init__(self, *, max_mib: int) -> None:
        self._max_mib = max_mib
        self._nodes = 0
        self._text = 0
        self._targets = 0
        self._reserved = 0
        self._services: Counter[bytes] = Counter()

    @property
    def used_bytes(self) -> int:
        """The estimated memory of all nodes."""
        text = self._nodes * NODE_BYTES + int(self._text * BYTES_PER_BYTE)
        return text + self._targets + SERVICE_BYTES * len(self._services) + self._reserved

    def reserve(
        self, node: bytes, before: bytes | None, targets: Targets | None = None
    ) -> Reservation:
        """Reserve what a new or changed node takes more than before.

        `targets` are those of the node, if they are known.

        Raises CapacityReached if that would pass the bound. A node that does not grow may always
        change.
        """
        changed = _changed_targets(before, node, targets)
        growth = self._growth(node, before, changed)
        if growth <= 0:
            return Reservation(0, before, changed)
        if self._max_mib and self.used_bytes + growth > self._max_mib * MIB:
            raise CapacityReached(
                f"the registry's nodes take {self._max_mib} MiB, which is its bound"
                " (nodes.max_mib); nodes that are known and do not grow are accepted. Delete nodes,"
                " or raise the bound together with the memory that the registry may take"
            )
        self._reserved += growth
        return Reservation(growth, before, changed)

    def release(self, reservation: Reservation) -> None:
        """Release what was reserved, since the node is stored, or was refused, by now."""
        self._reserved -= reservation.size

    def replace(
        self, before: bytes | None, node: bytes | None, reservation: Reservation | None = None
    ) -> None:
        """Count a node as it is now instead of as it was; None where there is none.

        With the `reservation` for this change, nothing is computed twice.
        """
        self._nodes += (node is not None) - (before is not None)
        self._text += len(node or b"") - len(before or b"")
        if reservation is not None and reservation.before is before:
            self._replace_targets(*reservation.targets)
        else:
            self._replace_targets(*_changed_targets(before, node))

    def fill(self, nodes: Iterable[bytes]) -> None:
        """Count all nodes of a store, even if they pass the bound."""
        for node in nodes:
            self.replace(None, node)

    def _growth(self, node: bytes, before: bytes | None, targets: tuple[Targets, Targets]) -> int:
        old, new = targets
        growth = int((len(node) - len(before or b"")) * BYTES_PER_BYTE) + new.cost - old.cost
        if before is None:
            growth += NODE_BYTES
        return growth + SERVICE_BYTES * len(new.services - self._services.keys())

    def _replace_targets(self, old: Targets, new: Targets) -> None:
        self._targets += new.cost - old.cost
        services = self._services
        services.update(new.services - old.services)
        for service in old.services - new.services:
            services[service] -= 1
            if not services[service]:
                del services[service]
