"""What nodes add to the targets of a service, encoded once for all answers."""

from collections.abc import Sequence

import msgspec

from registry.nodes.directory.directory import Entry
from registry.prometheus.targets import (
    ITEMS_PER_STEP,
    TOO_LARGE,
    NodeTargets,
    hostname_meta_label,
    meta_labels,
)
from registry.responses.sorted_blocks import BlockItem
from registry.responses.time_slices import Steps

NO_LABELS = b"{}"
# To decode or encode a node of this size takes some 0.2 ms.
LARGE_BYTES = 64 * 1024

_encode = msgspec.json.Encoder(order="deterministic").encode


class Offer(BlockItem):
    """What one node adds to the answers of one service.

    The node's labels for relabelling are not part of it: they are the same in all its offers, of
    which there may be thousands, and may take a mebibyte.
    """

    __slots__ = ("_groups", "hostname", "reasons", "targets")

    def __init__(
        self,
        hostname: str,
        groups: Sequence[tuple[bytes, bytes]],
        reasons: Sequence[str],
        *,
        targets: int = 0,
    ) -> None:
        super().__init__()
        self.hostname = hostname
        self._groups = tuple(groups)  # of each one the targets and the labels, encoded
        self.reasons = tuple(reasons)
        self.targets = targets  # of all groups

    def flat(self, meta: bytes) -> list[bytes]:
        """Return the groups as http_sd has them, with encoded labels for relabelling."""
        return [
            b'{"targets":%b,"labels":%b%b%b}'
            % (targets, labels[:-1], b"," if len(labels) > len(NO_LABELS) else b"", meta[1:])
            for targets, labels in self._groups
        ]

    def nested(self) -> list[bytes]:
        """Return the array of the node's groups in the documented form; nothing if it has none."""
        groups = [b'{"Targets":%b,"Labels":%b}' % group for group in self._groups]
        return [b"[%b]" % b",".join(groups)] if groups else []


def make_offer(hostname: str, node_targets: NodeTargets) -> Steps[Offer]:
    """Return the offer of a node with these targets."""
    groups = []
    for number, group in enumerate(node_targets.groups, 1):
        labels = _encode(group.labels) if group.labels else NO_LABELS
        groups.append((_encode(group.targets), labels))
        if number % ITEMS_PER_STEP == 0:
            yield
    reasons = [remark.reason for remark in node_targets.remarks]
    targets = sum(len(group.targets) for group in node_targets.groups)
    return Offer(hostname, groups, reasons, targets=targets)


def encoded_meta_labels(entry: Entry, offer: Offer) -> Steps[bytes]:
    """Return a node's labels for relabelling as JSON; only the hostname if they are large."""
    if TOO_LARGE in offer.reasons:
        return _encode(hostname_meta_label(entry.hostname))
    node = entry.node()
    is_large = len(entry.head) > LARGE_BYTES
    if is_large:
        yield
    labels = yield from meta_labels(node)
    if is_large:
        yield
    encoded = _encode(labels)
    if is_large:
        yield
    return encoded
