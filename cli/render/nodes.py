"""The nodes as a watch tells of them, and whether all of them are known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from registry.client.watch import NodeEvent
from registry.message import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateNode:
    """A node as templates see it.

    There is no ``last_update``: it changes at each heartbeat, and so would every file.
    """

    hostname: str
    labels: Sequence[str]
    kv: dict[str, str]
    stale: bool

    def values(self, key: str) -> list[str]:
        """Return what follows ``key:`` in the labels that begin so."""
        start = f"{key}:"
        return [label.removeprefix(start) for label in self.labels if label.startswith(start)]


class NodeSet:
    """All nodes that a watch has told of since a `reset`.

    The watch does not say when its list of all nodes has ended. So the hostnames are read by
    another request, after the `reset`: once the watch has told of each of them, the set is whole.
    """

    def __init__(self) -> None:
        self._nodes = dict[str, Node]()
        self._stale: set[str] = set()
        self._gone: set[str] = set()
        self._missing: set[str] | None = None
        self._is_whole = False

    def is_whole(self) -> bool:
        """Return whether the watch has told of all nodes."""
        return self._is_whole

    @property
    def missing(self) -> int:
        """How many of the expected nodes were not told of yet."""
        return len(self._missing or ())

    def __iter__(self) -> Iterator[TemplateNode]:
        for hostname in sorted(self._nodes):
            node = self._nodes[hostname]
            yield TemplateNode(
                hostname=hostname, labels=node.labels, kv=node.kv, stale=hostname in self._stale
            )

    def __len__(self) -> int:
        return len(self._nodes)

    def expect(self, hostnames: Iterable[str]) -> None:
        """Take the names of all nodes, read at some time after the `reset`.

        A node that goes before the watch has listed it is never told of. So read the names again
        after some time, if the set is still not whole.
        """
        self._missing = set(hostnames) - self._nodes.keys() - self._gone
        self._look()

    def apply(self, event: NodeEvent) -> None:
        """Apply an event other than `reset`."""
        hostname = event.hostname
        if event.kind == "node" and event.node is not None:
            self._nodes[hostname] = event.node
            self._gone.discard(hostname)
        elif event.kind == "gone":
            self._nodes.pop(hostname, None)
            self._gone.add(hostname)
        if event.kind == "stale":
            self._stale.add(hostname)
        elif event.kind in ("fresh", "gone"):
            self._stale.discard(hostname)
        if self._missing is not None:
            self._missing.discard(hostname)
            self._look()

    def _look(self) -> None:
        if not self._missing:
            self._is_whole = True
            self._missing = None
        if self._is_whole:
            self._gone.clear()
