"""Changes of nodes are pending until the store has them or rejects them, and not for longer."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from registry.errors import StoreUnavailable
from registry.nodes.context import Freshness
from registry.nodes.directory import KnownNode
from registry.nodes.writes import MAX_TOUCHED_AT_ONCE, Writes
from registry.store.protocol import Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import clocks_of, context_of
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.stores.sqlite_store import row

WEB = "web-1"


class Changes:
    """Changes of one node; `left` is what was pending as each of them was done."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.store = MemoryStore()
        self.store.failure = failure
        self.writes = Writes(context_of(self.store, clocks_of(ManualClock())))
        self.left: list[dict[str, KnownNode | None]] = []

    def put(self, entry: KnownNode) -> asyncio.Future[None]:
        return self.writes.put(entry, self._note, lambda: None)

    def delete(self) -> asyncio.Future[None]:
        return self.writes.delete(WEB, self._note, lambda: None)

    def _note(self, error: Exception | None) -> None:
        del error
        self.left.append(dict(self.writes.pending))


def node() -> KnownNode:
    return KnownNode(Row(WEB, b'{"labels":[],"kv":{}}', 1_700_000_000, "192.0.2.1"), heard=0.0)


@pytest.mark.parametrize("failure", [None, StoreUnavailable("broken")], ids=["stored", "rejected"])
@pytest.mark.parametrize(
    "change", [lambda made: made.put(node()), Changes.delete], ids=["put", "delete"]
)
async def test_a_change_leaves_nothing_behind_whether_it_succeeds_or_fails(
    change: Callable[[Changes], asyncio.Future[None]], failure: Exception | None
) -> None:
    made = Changes(failure)
    future = change(made)
    assert list(made.writes.pending) == [WEB]
    await asyncio.wait([future])
    assert future.exception() is failure
    assert made.left == [{}]

    made.store.failure = None
    made.writes.touch(node())
    await made.writes.flush()
    assert made.writes.touched == 0, "it is still held back"


async def test_what_is_pending_is_the_last_change() -> None:
    made, first, last = Changes(), node(), node()
    await asyncio.gather(made.put(first), made.delete(), made.put(last))
    assert made.left == [{WEB: last}, {WEB: last}, {}]

    made.left.clear()
    await asyncio.gather(made.put(first), made.delete())
    assert made.left == [{WEB: None}, {}]


BEFORE = row("a")
HEARD_AT = BEFORE.last_update + 60


def heard(hostname: str = "a") -> KnownNode:
    """Return a node that was seen since it was written."""
    return KnownNode(row(hostname)._replace(last_update=HEARD_AT), heard=0.0)


def loaded(store: MemoryStore) -> Writes:
    """Return the writes to a store whose nodes are loaded; each flush writes."""
    always = Freshness(stale_after=0, expire_after=0, started=0.0, expire_at_most_percent=0)
    writes = Writes(context_of(store, clocks_of(ManualClock()), freshness=always))
    writes.unavailable_error = None
    return writes


async def test_what_could_not_be_written_is_written_next_time() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    writes.touch(node)

    store.failure = StoreUnavailable("the disk is full")
    await writes.flush()
    assert node.is_touched
    store.failure = None
    await writes.flush()

    assert store.rows["a"].last_update == HEARD_AT
    assert not node.is_touched


async def test_a_node_that_is_seen_often_meanwhile_is_written_once() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    store.failure = StoreUnavailable("the disk is full")
    for _ in range(5):
        writes.touch(node)
        await writes.flush()

    assert writes.touched == 1


async def test_many_nodes_are_written_in_the_order_in_which_they_were_seen() -> None:
    hostnames = [f"h{number:05}" for number in reversed(range(2 * MAX_TOUCHED_AT_ONCE + 1))]
    store = MemoryStore([row(name) for name in hostnames])
    writes = loaded(store)
    for name in hostnames:
        writes.touch(heard(name))

    flushed = asyncio.create_task(writes.flush())
    written = [0]
    while not flushed.done():
        await asyncio.sleep(0)
        found = [store.rows[name].last_update == HEARD_AT for name in hostnames]
        assert found == sorted(found, reverse=True)
        written.append(sum(found))

    steps = {later - before for before, later in itertools.pairwise(written)} - {0}
    assert steps == {MAX_TOUCHED_AT_ONCE, 1}


async def test_a_node_that_goes_while_its_write_fails_is_not_written_later() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    writes.touch(node)
    store.failure = StoreUnavailable("the disk is full")
    failing = asyncio.create_task(writes.flush())
    await asyncio.sleep(0)  # it has handed the node to the store

    writes.discard_touch(node)  # then a new node may have the name
    await failing
    store.failure = None
    await writes.flush()

    assert store.rows["a"] == BEFORE


async def test_a_node_that_another_registry_changes_is_written_again_once_it_is_seen() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    writes.touch(node)

    writes.discard_touch(node)
    await writes.flush()
    assert store.rows["a"] == BEFORE
    writes.touch(node)
    await writes.flush()

    assert store.rows["a"].last_update == HEARD_AT


async def test_what_was_seen_a_node_waits_while_its_change_is_written() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    writes.touch(node)

    writes.pending["a"] = node
    await writes.flush()
    assert store.rows["a"] == BEFORE
    assert node.is_touched
    node.last_update += 30
    writes.touch(node)
    del writes.pending["a"]
    await writes.flush()

    assert store.rows["a"].last_update == HEARD_AT + 30


async def test_a_node_that_goes_while_its_change_is_written_is_not_written_later() -> None:
    store, node = MemoryStore([BEFORE]), heard()
    writes = loaded(store)
    writes.touch(node)

    writes.pending["a"] = node
    writes.discard_touch(node)
    del writes.pending["a"]
    await writes.flush()

    assert store.rows["a"] == BEFORE
    assert not node.is_touched
