"""What nodes add to the targets of a service, encoded once for all answers."""

import msgspec

from registry.answers.sorted_blocks import BlockItem
from registry.nodes.directory import Entry
from registry.prometheus.targets import (
    TOO_LARGE,
    NodeTargets,
    hostname_meta_label,
    meta_labels,
)

NO_LABELS = b"{}"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Offer(BlockItem):
    """What one node adds to the answers of one service.

    The node's labels for relabelling are not part of it: they are the same in all its offers, of
    which there may be thousands, and may take a mebibyte.
    """

    __slots__ = ("_groups", "hostname", "reasons")

    def __init__(self, hostname: str, node_targets: NodeTargets) -> None:
        super().__init__()
        self.hostname = hostname
        self._groups = tuple(
            [
                (_encode(group.targets), _encode(group.labels) if group.labels else NO_LABELS)
                for group in node_targets.groups
            ]
        )
        self.reasons = tuple([remark.reason for remark in node_targets.remarks])

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


def encoded_meta_labels(entry: Entry, offer: Offer) -> bytes:
    """Return a node's labels for relabelling as JSON; only the hostname if they are large."""
    if TOO_LARGE in offer.reasons:
        return _encode(hostname_meta_label(entry.hostname))
    return _encode(meta_labels(entry.node()))
