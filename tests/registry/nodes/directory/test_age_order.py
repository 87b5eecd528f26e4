"""The order in which nodes were last heard of."""

from dataclasses import dataclass
from random import Random
from typing import Self

from registry.nodes.directory import AgeOrder


@dataclass
class One:
    """A node."""

    heard: float
    older: Self | None = None
    newer: Self | None = None


def test_nodes_are_inserted_where_their_times_belong() -> None:
    random = Random(7)
    for _ in range(50):
        ages = AgeOrder[One]()
        there = sorted(random.randrange(9) for _ in range(random.randrange(6)))
        added = [random.randrange(9) for _ in range(random.randrange(6))]
        for heard in there:
            ages.add(One(heard))

        ages.insert([One(heard) for heard in added])

        nodes = list(ages)
        assert [node.heard for node in nodes] == sorted(there + added)
        assert len(ages) == len(nodes)
        for node in nodes:
            ages.remove(node)
        assert list(ages) == []
