"""A registry with a hundred thousand nodes, and how long its loop is held up."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import NamedTuple

from clients.message import Heartbeat
from registry.daemon import IndexRefresher
from registry.nodes.changes import Source
from registry.nodes.directory import KnownNode
from registry.nodes.heartbeats import Report
from registry.prometheus.answers import MAX_CACHED_BYTES
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.large_fleet import MeasuredLoop, rows
from tests.support.registry.stores.memory_store import MemoryStore

NODES = 100_000
MAX_SECONDS = 0.010
HEARTBEAT_SECONDS = 30
# Beside other work, a processor's caches are shared, and an iteration may take twice its time.
# What holds up the loop by itself does so in each attempt.
ATTEMPTS = 8


class LoadedRegistry(NamedTuple):
    """A registry with many nodes, the loop on which it runs, and how long its load held it up."""

    loop: MeasuredLoop
    registry: InProcessRegistry
    refresher: IndexRefresher
    load_seconds: float

    def longest(
        self,
        work: Callable[[], Awaitable[object]],
        goal: float = MAX_SECONDS,
        *,
        prepare: Callable[[], Awaitable[object]] | None = None,
    ) -> float:
        """Return the longest iteration of the loop during the work, in the best attempt.

        None finds what an earlier request or attempt has left for the next one. The preparation
        is not measured.
        """

        async def once() -> float:
            await drop_kept(self.registry)
            if prepare is not None:
                await prepare()
            with self.loop.measured() as seconds:
                await work()
            return max(seconds)

        best = float("inf")
        for _ in range(ATTEMPTS):
            best = min(best, self.loop.run(once()))
            if best < goal:
                break
        return best


@contextmanager
def loaded_registry(loop: MeasuredLoop) -> Iterator[LoadedRegistry]:
    """Run a registry that loads all nodes."""
    stack = AsyncExitStack()
    registry = loop.run(
        stack.enter_async_context(
            in_process_registry(
                store=MemoryStore(rows(NODES)), load=False, level="error", record_audit=False
            )
        )
    )
    components = registry.components

    async def load(refresher: IndexRefresher) -> float:
        with loop.measured() as seconds:
            await components.nodes.load()
            await refresher.refresh()
        return max(seconds)

    with IndexRefresher(components.index, components.context.directory) as refresher:
        yield LoadedRegistry(loop, registry, refresher, loop.run(load(refresher)))
        loop.run(stack.aclose())


async def drop_kept(registry: InProcessRegistry) -> None:
    """Drop what is kept of answers for the next one: targets, and the texts of searches."""
    index = registry.components.index
    while True:
        await index.record_use("web", "flat", MAX_CACHED_BYTES + 1)  # the others have no room now
        await index.record_use("node", "nested", 0)
        if index.cached_bytes == 0:  # or else a request has ended meanwhile
            break
    for block in registry.components.context.directory.sorted.blocks():
        block.invalidate()


def report(registry: InProcessRegistry, entries: Sequence[KnownNode]) -> None:
    """Accept heartbeats as the nodes were."""
    for entry in entries:
        node = entry.node()
        heartbeat = Heartbeat(labels=node.labels, kv=node.kv)
        source = Source("test", entry.address)
        report = Report(entry.hostname, b"", source, operator=True)
        registry.components.nodes.heartbeats.accept(report, heartbeat)


def hear(registry: InProcessRegistry, entries: Sequence[KnownNode]) -> None:
    """Hear of nodes, spread over the seconds between two heartbeats."""
    for some in by_second(registry, entries):
        for entry in some:
            registry.components.context.directory.heard(
                entry, last_update=entry.last_update, heard=registry.clock.uptime
            )


def by_second(
    registry: InProcessRegistry, entries: Sequence[KnownNode]
) -> Iterator[Sequence[KnownNode]]:
    """Yield those of each second between two heartbeats; the clock goes on."""
    for second in range(HEARTBEAT_SECONDS):
        registry.clock.pass_seconds(1)
        yield entries[second::HEARTBEAT_SECONDS]


async def forget(loaded: LoadedRegistry, hostnames: Sequence[str]) -> None:
    """Delete nodes that a test added, also from the index, as the daemon does within a second."""
    for hostname in hostnames:
        answer = await loaded.registry.ask("DELETE", f"/nodes/{hostname}")
        assert answer.status == 200, answer.body
    await loaded.refresher.refresh()
