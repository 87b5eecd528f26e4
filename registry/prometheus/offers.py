"""What nodes add to the targets of a service, encoded once for all answers."""

from collections.abc import Iterator
from typing import Any

import msgspec

from registry.nodes.directory import KnownNode
from registry.prometheus.targets import (
    ITEMS_PER_STEP,
    TOO_LARGE,
    NodeTargets,
    fixed_meta_labels,
    meta_labels,
)
from registry.responses.blocks import Block
from registry.responses.slices import Steps

NO_LABELS = b"{}"
# Prometheus cannot compare two labels in relabelling, so the registry shows what differs.
HOST_GIVEN = b'"__meta_rollcall_host_given":"true",'
# To decode or encode a node of this size takes some 0.2 ms.
LARGE_BYTES = 64 * 1024

_encode = msgspec.json.Encoder(order="deterministic").encode


class Offer(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What one node adds to the answers of one service; `targets` is how many all groups have.

    `groups` holds the targets and the labels of each one in turn, encoded. The node's labels for
    relabelling are not part of it: they are the same in all its offers, of which there may be
    thousands, and may take a mebibyte. The garbage collector does not know of it, and soon lets go
    of a tuple of bytes. After a change of all nodes, it would look at all of their offers at once.
    """

    hostname: str
    groups: tuple[bytes, ...]
    reasons: tuple[str, ...]
    targets: int

    def enter(self, block: Block[Any]) -> None:
        """Take no note of the block: an offer is replaced, and does not change."""

    def flat(self, meta: bytes) -> list[bytes]:
        """Return the groups as http_sd has them, with encoded labels for relabelling."""
        return [
            b'{"targets":%b,"labels":%b%b%b%b}'
            % (
                targets,
                labels[:-1],
                b"," if len(labels) > len(NO_LABELS) else b"",
                b"" if self._is_hostname(targets) else HOST_GIVEN,
                meta[1:],
            )
            for targets, labels in self._pairs()
        ]

    def _is_hostname(self, targets: bytes) -> bool:
        """Return whether encoded targets are the hostname alone: no label gives a host."""
        return b"," not in targets and targets[2:-2].partition(b":")[0] == self.hostname.encode()

    def nested(self) -> list[bytes]:
        """Return the array of the node's groups in the documented form; nothing if it has none."""
        groups = [b'{"Targets":%b,"Labels":%b}' % pair for pair in self._pairs()]
        return [b"[%b]" % b",".join(groups)] if groups else []

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.groups[::2], self.groups[1::2], strict=True)


def make_offer(hostname: str, node_targets: NodeTargets) -> Steps[Offer]:
    """Return the offer of a node with these targets."""
    groups: list[bytes] = []
    for number, group in enumerate(node_targets.groups, 1):
        labels = _encode(group.labels) if group.labels else NO_LABELS
        groups += _encode(group.targets), labels
        if number % ITEMS_PER_STEP == 0:
            yield
    reasons = tuple(remark.reason for remark in node_targets.remarks)
    targets = sum(len(group.targets) for group in node_targets.groups)
    return Offer(hostname, tuple(groups), reasons, targets)


def encoded_meta_labels(entry: KnownNode, offer: Offer) -> Steps[bytes]:
    """Return a node's labels for relabelling as JSON; only the fixed ones if they are large."""
    if TOO_LARGE in offer.reasons:
        return _encode(fixed_meta_labels(entry.hostname, entry.address))
    node = entry.node()
    is_large = len(entry.head) > LARGE_BYTES
    if is_large:
        yield
    labels = yield from meta_labels(node, entry.address)
    if is_large:
        yield
    encoded = _encode(labels)
    if is_large:
        yield
    return encoded
