"""The directory: which nodes are fresh and which are stale, by when they were seen."""

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Self

from hypothesis import given
from hypothesis import strategies as st

from registry.nodes.directory import STALE, AgeOrder, Directory, KnownNode
from registry.store.protocol import Row


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


# Whether they tell of apps that are down.
DOCUMENTS = {
    b'{"labels":[],"kv":{}}': False,
    b'{"labels":["apps.unhealthy"],"kv":{"apps.running":"2","apps.total":"2"}}': False,
    b'{"labels":[],"kv":{"apps.running":"1","apps.total":"2"}}': True,
    b'{"labels":[],"kv":{"apps.unhealthy":"1"}}': True,
}
HOSTS = [f"h{number}" for number in range(5)]
STEPS = st.tuples(st.sampled_from(["put", "heard", "stale", "remove"]), st.sampled_from(HOSTS))


@given(st.lists(STEPS, max_size=60))
def test_nodes_stay_in_the_order_in_which_they_were_seen(steps: list[tuple[str, str]]) -> None:
    directory, times = Directory(), count()
    fresh: list[str] = []
    stale: list[str] = []
    for step, hostname in steps:
        entry = directory.entries.get(hostname)
        if step == "stale":  # the one that was not seen for longest
            if fresh:
                directory.move([next(iter(directory.fresh))], STALE)
                stale.append(fresh.pop(0))
            continue
        was_stale = hostname in stale
        if step == "put":
            row = Row(hostname, b'{"labels":[],"kv":{}}', 1, "-")
            directory.put(KnownNode(row, heard=0.0), heard=next(times))
        elif step == "remove":
            assert directory.remove(hostname) is entry
        elif entry is not None:
            assert directory.heard(entry, last_update=1, heard=next(times)) == was_stale
        known = step == "put" or (step == "heard" and entry is not None)
        fresh = [name for name in fresh if name != hostname] + [hostname] * known
        stale = [name for name in stale if name != hostname]

        assert [entry.hostname for entry in directory.fresh] == fresh
        assert [entry.hostname for entry in directory.stages[STALE]] == stale
        assert (len(directory.fresh), len(directory.stages[STALE])) == (len(fresh), len(stale))


@given(
    filled=st.dictionaries(st.sampled_from(HOSTS), st.sampled_from(list(DOCUMENTS))),
    steps=st.lists(
        st.tuples(st.sampled_from(HOSTS), st.sampled_from([*DOCUMENTS, None])), max_size=60
    ),
)
def test_nodes_with_apps_down_are_counted(
    filled: dict[str, bytes], steps: list[tuple[str, bytes | None]]
) -> None:
    """A step puts this document of a host, or removes the host if it is None."""
    directory, times = Directory(), count()
    documents = dict(filled)
    directory.fill([stored(hostname, document) for hostname, document in filled.items()])
    assert directory.apps_down == sum(map(DOCUMENTS.__getitem__, documents.values()))
    for hostname, document in steps:
        if document is None:
            directory.remove(hostname)
            documents.pop(hostname, None)
        else:
            directory.put(stored(hostname, document), heard=next(times))
            documents[hostname] = document

        assert directory.apps_down == sum(map(DOCUMENTS.__getitem__, documents.values()))
        for name, known in documents.items():
            found = directory.entries.get(name)
            assert found is not None
            assert found.apps_down is DOCUMENTS[known]


def stored(hostname: str, document: bytes) -> KnownNode:
    """Return the entry of a stored node."""
    return KnownNode(Row(hostname, document, 1, "-"), heard=0.0)


def test_a_node_that_becomes_stale_while_silent_nodes_are_read_is_not_left_out() -> None:
    directory = Directory()
    for time, hostname in enumerate(HOSTS):
        directory.put(
            KnownNode(Row(hostname, b'{"labels":[],"kv":{}}', 1, "-"), heard=0.0), heard=time
        )
    directory.move([next(iter(directory.fresh))], STALE)

    found = directory.heard_until(len(HOSTS))
    read = [next(found).hostname]
    directory.move([next(iter(directory.fresh))], STALE)
    directory.move([next(iter(directory.fresh))], STALE)
    read += [entry.hostname for entry in found]

    assert sorted({*read}) == HOSTS


def test_a_node_that_is_stored_anew_has_not_moved_since() -> None:
    directory = Directory()
    row = Row("h1", b'{"labels":[],"kv":{}}', 1, "192.0.2.1")
    known = KnownNode(row, heard=0.0)
    directory.put(known, heard=0.0)
    known.address, known.is_moved = "192.0.2.2", True

    changed = row._replace(document=b'{"labels":["a"],"kv":{}}', address="192.0.2.3")
    directory.put(KnownNode(changed, heard=1.0), heard=1.0)

    assert (known.address, known.is_moved) == ("192.0.2.3", False)
