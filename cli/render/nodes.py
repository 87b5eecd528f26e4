"""The nodes as a watch reports them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clients.models import AddressedNode, NodeEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateNode:
    """A node as templates see it.

    There is no ``last_update``: it changes at each heartbeat, and so would every file. ``address``
    is where its last heartbeat came from.
    """

    hostname: str
    address: str
    labels: Sequence[str]
    kv: dict[str, str]
    stale: bool

    def values(self, key: str) -> list[str]:
        """Return what follows ``key:`` in the labels that begin so."""
        start = f"{key}:"
        return [label.removeprefix(start) for label in self.labels if label.startswith(start)]


class NodeSet:
    """The nodes that a watch has reported since a `reset`."""

    def __init__(self) -> None:
        self._nodes = dict[str, AddressedNode]()
        self._stale: set[str] = set()

    def __iter__(self) -> Iterator[TemplateNode]:
        for hostname in sorted(self._nodes):
            node = self._nodes[hostname]
            yield TemplateNode(
                hostname=hostname,
                address=node.address or "",
                labels=node.labels,
                kv=node.kv,
                stale=hostname in self._stale,
            )

    def __len__(self) -> int:
        return len(self._nodes)

    def apply(self, event: NodeEvent) -> None:
        """Apply an event other than `reset` and `listed`."""
        hostname = event.hostname
        if event.kind == "node" and event.node is not None:
            self._nodes[hostname] = event.node
        elif event.kind == "gone":
            self._nodes.pop(hostname, None)
        if event.kind == "stale":
            self._stale.add(hostname)
        elif event.kind in ("fresh", "gone"):
            self._stale.discard(hostname)
