"""A full garbage collection does not hold up the loop, however many nodes there are."""

import asyncio
import gc
import weakref
from collections.abc import Iterator, Sequence

import pytest

from clients.message import Heartbeat
from registry.daemon import NODES_PER_FREEZE
from registry.nodes.directory import KnownNode, entries_from_rows
from registry.nodes.heartbeats import Report
from registry.store.protocol import Row
from tests.support.registry.load.large_fleet import MeasuredLoop, rows
from tests.support.registry.load.large_nodes import SOURCE
from tests.support.registry.stalls.loaded_registry import (
    MAX_SECONDS,
    NODES,
    LoadedRegistry,
    loaded_registry,
    report,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.release("measures the loop of a large registry on a quiet machine"),
]

REPORTED_AT_ONCE = 20
# So many that a collection would take too long if no new node were frozen.
FREEZES = 12
CHANGED = 10_000
WAITING = 128
ROUNDS = 20


class Cycle:
    """What only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedRegistry]:
    """Yield a registry whose nodes are in the index."""
    with MeasuredLoop() as loop, loaded_registry(loop) as loaded:
        yield loaded


def new_nodes(loaded: LoadedRegistry, count: int) -> Sequence[KnownNode]:
    """Return so many nodes that the registry does not know."""
    known = len(loaded.registry.components.context.directory)
    return entries_from_rows(rows(known + count)[known:], now=loaded.registry.clock.uptime)


async def report_all(loaded: LoadedRegistry, entries: Sequence[KnownNode]) -> None:
    """Report nodes, some in each iteration of the loop, and refresh the index."""
    for start in range(0, len(entries), REPORTED_AT_ONCE):
        report(loaded.registry, entries[start : start + REPORTED_AT_ONCE])
        await asyncio.sleep(0)  # the store takes them in the next iteration
    await loaded.refresher.refresh()


async def collect() -> None:
    """Collect all garbage, as happens by itself now and then."""
    gc.collect()


def test_a_full_collection_when_as_many_nodes_as_may_be_are_not_frozen(
    loaded: LoadedRegistry,
) -> None:
    directory = loaded.registry.components.context.directory
    known = len(directory)
    assert known >= NODES

    for _ in range(FREEZES):
        loaded.loop.run(report_all(loaded, new_nodes(loaded, NODES_PER_FREEZE)))
    frozen = gc.get_freeze_count()
    loaded.loop.run(report_all(loaded, new_nodes(loaded, NODES_PER_FREEZE - 1)))

    assert len(directory) == known + (FREEZES + 1) * NODES_PER_FREEZE - 1
    assert gc.get_freeze_count() <= frozen  # the last ones are not
    assert loaded.longest(collect) < MAX_SECONDS


def test_garbage_is_not_frozen(loaded: LoadedRegistry) -> None:
    cycle = Cycle()
    garbage = weakref.ref(cycle)
    entries = new_nodes(loaded, NODES_PER_FREEZE)
    gc.disable()  # until the freeze
    del cycle

    loaded.loop.run(report_all(loaded, entries))

    assert gc.isenabled()
    gc.collect()
    assert garbage() is None


def test_the_collector_does_not_know_of_what_is_made_for_changed_nodes(
    loaded: LoadedRegistry,
) -> None:
    registry = loaded.registry
    known = len(registry.components.context.directory)
    changed = entries_from_rows(rows(CHANGED, further_bytes=1), now=registry.clock.uptime)
    bodies = {entry.hostname: entry.head for entry in changed[::1000]}

    loaded.loop.run(report_all(loaded, changed))

    assert len(registry.components.context.directory) == known
    for hostname, head in bodies.items():
        entry = registry.components.context.directory.entries.get(hostname)
        assert entry is not None
        assert entry.head == head
    del changed
    gc.collect()
    # The store of the test keeps rows, and the log of changes up to some hundred until it writes.
    assert sum(not isinstance(each, Row) for each in gc.get_objects()) < CHANGED / 4


def test_changes_that_wait_for_the_store_start_no_collection(loaded: LoadedRegistry) -> None:
    heartbeats = loaded.registry.components.nodes.heartbeats
    hostnames = [row.hostname for row in rows(WAITING)]

    async def change_all(number: int) -> None:
        heartbeat = Heartbeat(labels=[], kv={"number": str(number)})
        results = [
            heartbeats.accept(Report(hostname, b"", SOURCE, operator=True), heartbeat)
            for hostname in hostnames
        ]
        await asyncio.gather(*[result.durable for result in results if result.durable])

    loaded.loop.run(change_all(0))
    before = collections()
    for number in range(1, ROUNDS + 1):
        loaded.loop.run(change_all(number))

    assert gc.isenabled()
    assert collections() - before < ROUNDS / 2


def collections() -> int:
    """Return how often the collector has looked at new objects, its first generation."""
    return int(gc.get_stats()[0]["collections"])
