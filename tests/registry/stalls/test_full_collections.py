"""A full garbage collection does not hold up the loop, however many nodes there are."""

import asyncio
import gc
from collections.abc import Iterator, Sequence

import pytest

from registry.nodes.directory.directory import Entry, entries_from_rows
from registry.store.protocol import Row
from tests.support.registry.load.large_fleet import MeasuredLoop, rows
from tests.support.registry.stalls.loaded_registry import (
    LoadedRegistry,
    loaded_registry,
    report,
)

pytestmark = pytest.mark.real

REPORTED_AT_ONCE = 20
CHANGED = 10_000


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedRegistry]:
    """Yield a registry whose nodes are in the index."""
    with MeasuredLoop() as loop, loaded_registry(loop) as loaded:
        yield loaded


async def report_all(loaded: LoadedRegistry, entries: Sequence[Entry]) -> None:
    """Report nodes, some in each iteration of the loop, and refresh the index."""
    for start in range(0, len(entries), REPORTED_AT_ONCE):
        report(loaded.registry, entries[start : start + REPORTED_AT_ONCE])
        await asyncio.sleep(0)  # the store takes them in the next iteration
    await loaded.refresher.refresh()


def test_the_collector_does_not_know_of_what_is_made_for_changed_nodes(
    loaded: LoadedRegistry,
) -> None:
    registry = loaded.registry
    known = len(registry.components.directory)
    changed = entries_from_rows(rows(CHANGED, further_bytes=1), now=registry.clock.uptime)
    bodies = {entry.hostname: entry.head for entry in changed[::1000]}

    loaded.loop.run(report_all(loaded, changed))

    assert len(registry.components.directory) == known
    for hostname, head in bodies.items():
        entry = registry.components.directory.get(hostname)
        assert entry is not None
        assert entry.head == head
    del changed
    gc.collect()
    # The store of the test keeps rows, and the log of changes up to some hundred until it writes.
    assert sum(not isinstance(each, Row) for each in gc.get_objects()) < CHANGED / 4
