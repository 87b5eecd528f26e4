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
NODE_BYTES = 660
BYTES_PER_BYTE = 2.7
TARGET_LABEL_BYTES = 26
GROUP_BYTES = 160
OFFER_BYTES = 320
SERVICE_BYTES = 850

MARK = b'"prometheus:'
END_OF_LABELS = b'],"kv":{'
_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)


class Targets(NamedTuple):
    """What the labels of targets add to the cost of a node, and the services that they name."""

    cost: int
    services: AbstractSet[bytes]


NO_TARGETS = Targets(0, frozenset())


def targets_of(labels: bytes) -> Targets:
    """Return what labels add; they are encoded, with anything before them."""
    _, *parts = labels.split(MARK)
    if not parts:
        return NO_TARGETS
    cost, groups = 0, set()
    for part in parts:  # of a label prometheus:SERVICE@INSTANCE:KEY:VALUE
        group, _, key = _string(part).partition(b":")
        groups.add(group)
        cost += TARGET_LABEL_BYTES + len(key)
    services = {group.partition(b"@")[0] for group in groups}
    return Targets(cost + GROUP_BYTES * len(groups) + OFFER_BYTES * len(services), services)


def _labels(encoded: bytes) -> bytes:
    """Return a node up to the end of its labels; no string can hold what ends them."""
    return encoded[: encoded.index(END_OF_LABELS)]


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

    def reserve(self, node: bytes, before: bytes | None) -> int:
        """Reserve what a new or changed node takes more than before; return the bytes.

        Raises CapacityReached if that would pass the bound. A node that does not grow may always
        change.
        """
        growth = self._growth(node, before)
        if growth <= 0:
            return 0
        if self._max_mib and self.used_bytes + growth > self._max_mib * MIB:
            raise CapacityReached(
                f"the registry's nodes take {self._max_mib} MiB, which is its bound"
                " (nodes.max_mib); nodes that are known and do not grow are accepted. Delete nodes,"
                " or raise the bound together with the memory that the registry may take"
            )
        self._reserved += growth
        return growth

    def release(self, reserved: int) -> None:
        """Release what was reserved, since the node is stored, or was refused, by now."""
        self._reserved -= reserved

    def replace(self, before: bytes | None, node: bytes | None) -> None:
        """Count a node as it is now instead of as it was; None where there is none."""
        labels = _labels(node) if node is not None else b""
        labels_before = _labels(before) if before is not None else b""
        self._nodes += (node is not None) - (before is not None)
        self._text += len(node or b"") - len(before or b"")
        if labels != labels_before:
            self._add(targets_of(labels), 1)
            self._add(targets_of(labels_before), -1)

    def fill(self, nodes: Iterable[bytes]) -> None:
        """Count all nodes of a store, even if they pass the bound."""
        for node in nodes:
            self.replace(None, node)

    def _growth(self, node: bytes, before: bytes | None) -> int:
        growth = int((len(node) - len(before or b"")) * BYTES_PER_BYTE)
        if before is None:
            growth += NODE_BYTES
        labels, labels_before = _labels(node), _labels(before) if before is not None else b""
        if labels == labels_before:
            return growth
        targets = targets_of(labels)
        new_services = sum([service not in self._services for service in targets.services])
        growth += targets.cost - targets_of(labels_before).cost
        return growth + SERVICE_BYTES * new_services

    def _add(self, targets: Targets, sign: int) -> None:
        self._targets += sign * targets.cost
        services = self._services
        for service in targets.services:
            services[service] += sign
            if not services[service]:
                del services[service]
