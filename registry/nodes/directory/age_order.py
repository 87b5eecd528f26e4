"""Nodes in the order in which they were last seen."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Generic, Protocol, Self, TypeVar

# Marking or forgetting this many takes well under a millisecond.
MAX_AT_ONCE = 20


class Linked(Protocol):
    """An item of AgeOrder. It links to the items heard of before and after it.

    `heard` is the time.
    """

    heard: float
    older: Self | None
    newer: Self | None


T = TypeVar("T", bound=Linked)


class AgeOrder(Generic[T]):
    """Nodes in the order in which they were last seen, as a linked list.

    A node moves to the end at each heartbeat. That touches its neighbours alone, which are heard of
    at about the same time, so that they are in the processor's cache also among a million nodes. A
    dictionary of all nodes would be copied whenever it grows: with a hundred thousand nodes, that
    takes up to 10 ms.
    """

    def __init__(self) -> None:
        self._oldest: T | None = None
        self._newest: T | None = None
        self._count = 0
        self._walk: T | None = None  # the next one of heard_until

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        node = self._oldest
        while node is not None:
            yield node
            node = node.newer

    def oldest(self, choose: Callable[[T], bool | None]) -> list[T]:
        """Return at most MAX_AT_ONCE nodes that `choose` accepts, the oldest first.

        `choose` returns True to accept a node, None to leave it out, and False to stop there.
        """
        chosen: list[T] = []
        for node in self:
            verdict = choose(node)
            if verdict is False or len(chosen) == MAX_AT_ONCE:
                break
            if verdict:
                chosen.append(node)
        return chosen

    def heard_until(self, time: float) -> Iterator[T]:
        """Yield the nodes that were not heard of after a time, the oldest first.

        Nodes may move in between; those that are heard of meanwhile may be left out. Only one such
        iterator may be in use.
        """
        self._walk = self._oldest
        while (node := self._walk) is not None and node.heard <= time:
            self._walk = node.newer
            yield node
        self._walk = None

    def add(self, node: T) -> None:
        """Add a node that was heard of later than all others; it is in no other AgeOrder."""
        newest = self._newest
        if newest is None:
            self._oldest = node
        else:
            newest.newer = node
        node.older = newest
        self._newest = node
        self._count += 1

    def insert(self, nodes: Iterable[T]) -> None:
        """Add nodes where their times belong; they are in no other AgeOrder."""
        before = self._newest
        for node in sorted(nodes, key=attrgetter("heard"), reverse=True):
            while before is not None and before.heard > node.heard:
                before = before.older
            self._insert_after(before, node)

    def _insert_after(self, before: T | None, node: T) -> None:
        after = self._oldest if before is None else before.newer
        node.older, node.newer = before, after
        if before is None:
            self._oldest = node
        else:
            before.newer = node
        if after is None:
            self._newest = node
        else:
            after.older = node
        self._count += 1

    def remove(self, node: T) -> None:
        """Remove a node that is here."""
        older, newer = node.older, node.newer
        if node is self._walk:
            self._walk = newer
        if older is None:
            self._oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self._newest = older
        else:
            newer.older = older
        node.older = node.newer = None
        self._count -= 1
