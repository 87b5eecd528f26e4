"""Writes that a store gets later, for many nodes at once."""

import asyncio

from registry.errors import StoreUnavailable
from registry.store.conformance import Clock
from registry.store.deferred_writes import DeferredWrites
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.stores.sqlite_store import ignore, row

BEFORE = row("a")
HEARD = BEFORE._replace(last_update=BEFORE.last_update + 60)
HEARD_LATER = BEFORE._replace(last_update=BEFORE.last_update + 90)
LONG_SECONDS = 100.0


async def test_what_could_not_be_written_is_written_next_time() -> None:
    store = MemoryStore([BEFORE])
    writes = DeferredWrites(store, done=ignore, monotonic=Clock())
    writes.touch(HEARD)

    store.failure = StoreUnavailable("the disk is full")
    await writes.flush(max_interval=LONG_SECONDS, retry=False)
    assert writes.is_touched("a")
    store.failure = None
    await writes.flush(max_interval=LONG_SECONDS, retry=False)

    assert store.rows["a"].last_update == HEARD.last_update
    assert not writes.is_touched("a")


async def test_a_node_that_goes_while_its_write_fails_is_not_written_later() -> None:
    store = MemoryStore([BEFORE])
    writes = DeferredWrites(store, done=ignore, monotonic=Clock())
    writes.touch(HEARD)
    store.failure = StoreUnavailable("the disk is full")
    failing = asyncio.create_task(writes.flush(max_interval=LONG_SECONDS, retry=False))
    await asyncio.sleep(0)  # it has handed the node to the store

    writes.discard_touch("a")  # then a new node may have the name
    await failing
    store.failure = None
    await writes.flush(max_interval=LONG_SECONDS, retry=True)

    assert store.rows["a"] == BEFORE


async def test_what_was_heard_of_a_node_waits_while_its_change_is_written() -> None:
    store = MemoryStore([BEFORE])
    writes = DeferredWrites(store, done=ignore, monotonic=Clock())
    writes.touch(HEARD)

    writes.hold("a")
    await writes.flush(max_interval=LONG_SECONDS, retry=True)
    assert store.rows["a"] == BEFORE
    assert writes.is_touched("a")
    writes.touch(HEARD_LATER)
    writes.release("a")
    await writes.flush(max_interval=LONG_SECONDS, retry=False)

    assert store.rows["a"].last_update == HEARD_LATER.last_update


async def test_a_node_that_goes_while_its_change_is_written_is_not_written_later() -> None:
    store = MemoryStore([BEFORE])
    writes = DeferredWrites(store, done=ignore, monotonic=Clock())
    writes.touch(HEARD)

    writes.hold("a")
    writes.discard_touch("a")
    writes.release("a")
    await writes.flush(max_interval=LONG_SECONDS, retry=True)

    assert store.rows["a"] == BEFORE
    assert not writes.is_touched("a")
