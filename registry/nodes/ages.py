"""Nodes in the order in which they were last heard of."""

from collections.abc import Callable, Iterator, Mapping
from math import floor
from typing import Generic, Protocol, TypeVar

# To mark or forget so many takes well under a millisecond.
MAX_AT_ONCE = 20


class Heard(Protocol):
    """A host, and the monotonic time at which it was last heard of."""

    hostname: str
    heard: float


T = TypeVar("T", bound=Heard)


class Ages(Generic[T]):
    """Nodes by the second in which they were last heard of, the oldest first.

    One dictionary of all nodes would be copied whenever it grows: with a hundred thousand nodes,
    that takes up to 10 ms. The dictionaries hold hostnames alone, as the garbage collector passes
    over a dictionary of strings: to look at all nodes takes another 10 ms.
    """

    def __init__(self, nodes: Mapping[str, T]) -> None:
        """`nodes` holds each node by its hostname, as long as the node is here."""
        self._nodes = nodes
        self._seconds: dict[int, dict[str, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return (self._nodes[name] for names in self._seconds.values() for name in names)

    def __contains__(self, node: T) -> bool:
        return node.hostname in self._seconds.get(floor(node.heard), ())

    def oldest(self, choose: Callable[[T], bool | None]) -> list[T]:
        """Return some nodes, from the oldest up to the first of which `choose` says no.

        Those of which it says None are left out.
        """
        chosen: list[T] = []
        for node in self:
            verdict = choose(node)
            if verdict is False or len(chosen) == MAX_AT_ONCE:
                break
            if verdict:
                chosen.append(node)
        return chosen

    def add(self, node: T) -> None:
        """Add a node that was heard of later than all others, or in the same second as the last."""
        self._seconds.setdefault(floor(node.heard), {})[node.hostname] = None
        self._count += 1

    def remove(self, node: T) -> None:
        """Remove a node; its `heard` is that with which it was added."""
        second = floor(node.heard)
        hostnames = self._seconds[second]
        del hostnames[node.hostname]
        if not hostnames:
            del self._seconds[second]
        self._count -= 1
