"""Nodes whose services are in an index, without a registry around it."""

from collections.abc import Sequence

from clients.message import Heartbeat
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange
from registry.nodes.directory import Directory, KnownNode, encode_document
from registry.prometheus.answers import TargetFormat, TargetList
from registry.prometheus.index import TargetIndex
from registry.prometheus.targets import TargetOptions
from registry.responses.slices import TimeSlices
from registry.store.protocol import Row

PLAIN = ("prometheus:node",)


class IndexedNodes:
    """Nodes, and the index of their services."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.index = TargetIndex(self.directory, TargetOptions(), TimeSlices())

    def report(self, hostname: str, labels: Sequence[str], **kv: str) -> None:
        """Take what a node says now."""
        entry = entry_of(hostname, Heartbeat(labels=list(labels), kv=kv))
        self.directory.put(entry, heard=0.0)
        self.index.on_change(NodeChange(ChangeKind.CHANGED, entry, REGISTRY))

    def remove(self, hostname: str) -> None:
        """Forget a node."""
        entry = self.directory.remove(hostname)
        if entry is not None:
            self.index.on_change(NodeChange(ChangeKind.DELETED, entry, REGISTRY))

    async def ask(self, service: str, target_format: TargetFormat = "flat") -> bytes:
        """Return an answer."""
        return joined(await self.index.answer(service, target_format))


def entry_of(hostname: str, said: Heartbeat) -> KnownNode:
    """Return the entry of a host that said this."""
    return KnownNode(Row(hostname, encode_document(said), 1_700_000_000, "192.0.2.1"), heard=0.0)


def joined(answer: TargetList) -> bytes:
    """Return the whole answer."""
    return b"".join(answer.pieces())
