"""Half of a large fleet expires at once, in a store on a disk: the loop is not held up for long."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from registry.daemon import IndexRefresher
from registry.nodes.context import Freshness
from registry.nodes.directory import KnownNode
from registry.prometheus.targets import TargetOptions
from registry.registry import Registry
from registry.store.sqlite.store import SqliteStore
from tests.support.registry.in_process import ManualClocks, context_of
from tests.support.registry.load.large_fleet import MeasuredLoop, rows
from tests.support.registry.stalls.loaded_registry import MAX_SECONDS
from tests.support.registry.stores.sqlite_store import ignore, open_store

pytestmark = [
    pytest.mark.real,
    pytest.mark.release("measures the loop of a large registry on a quiet machine"),
]

NODES = 50_000
ATTEMPTS = 3  # each is with half of the nodes of the one before
STALE_SECONDS = 90
EXPIRE_SECONDS = 86_400


class Stored(NamedTuple):
    """A registry without its routes, whose nodes are in a file."""

    loop: MeasuredLoop
    path: Path
    store: SqliteStore
    components: Registry
    refresher: IndexRefresher
    clock: ManualClocks


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    """Yield a registry that has loaded all nodes."""
    path, clock = tmp_path / "registry.db", ManualClocks()
    with ExitStack() as stack:
        loop = stack.enter_context(MeasuredLoop())
        loop.run(fill(path))
        store = SqliteStore(
            path=path, monotonic=lambda: clock.uptime, observe=lambda _operations, _seconds: None
        )
        freshness = Freshness(
            stale_after=STALE_SECONDS,
            expire_after=EXPIRE_SECONDS,
            started=clock.uptime,
            expire_at_most_percent=0,
        )
        context = context_of(store, clock.clocks(), freshness=freshness)
        components = Registry(context, TargetOptions())
        refresher = IndexRefresher(components.index, components.context.directory)
        stack.enter_context(refresher)
        loop.run(components.load())
        loop.run(refresher.refresh())
        yield Stored(loop, path, store, components, refresher, clock)
        loop.run(store.close())


async def fill(path: Path) -> None:
    """Make a store of many nodes."""
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row, ignore) for row in rows(NODES)])


def test_half_of_the_nodes_expire_in_a_store_on_a_disk(stored: Stored) -> None:
    best = float("inf")
    for _ in range(ATTEMPTS):
        best = min(best, stored.loop.run(expire_half(stored)))
        if best < MAX_SECONDS:
            break

    assert best < MAX_SECONDS
    stored.loop.run(stored.store.close())
    assert stored.loop.run(hostnames_in(stored.path)) == {
        entry.hostname for entry in stored.components.context.directory.fresh
    }


async def expire_half(stored: Stored) -> float:
    """Return the longest iteration while half of the nodes expire, in memory and in the store."""
    components, clock = stored.components, stored.clock
    entries = list(components.context.directory.fresh)
    hear(stored, entries)
    gc.freeze()  # or the garbage collector would look at this list, in the registry's time
    clock.pass_seconds(EXPIRE_SECONDS - 10)
    hear(stored, entries[1::2])
    clock.pass_seconds(20)
    with stored.loop.measured() as seconds:
        await components.queries.update_ages()
        await components.nodes.writes.delete_expired()
        await stored.refresher.refresh()
    assert components.nodes.state_counts() == (len(entries) // 2, 0)
    return max(seconds)


def hear(stored: Stored, entries: Sequence[KnownNode]) -> None:
    """Hear of nodes now."""
    for entry in entries:
        stored.components.context.directory.heard(
            entry, last_update=entry.last_update, heard=stored.clock.uptime
        )


async def hostnames_in(path: Path) -> set[str]:
    """Return the hosts in a store."""
    async with open_store(path) as (_, stored):
        return {row.hostname for row in stored}
