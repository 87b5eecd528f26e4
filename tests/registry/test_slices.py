"""With a hundred thousand nodes, nothing holds up the loop for long, whoever asks for whatever."""

import asyncio
import gc
import http.client
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import pytest_asyncio

from registry.daemon import IndexRefresher
from registry.nodes.directory import Entry
from tests.support.registry.in_process import OPS, InProcessRegistry, in_process_registry
from tests.support.registry.large_fleet import rows, task_steps
from tests.support.registry.memory_store import MemoryStore

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

NODES = 100_000
MAX_SLICE_SECONDS = 0.010
CLIENTS = 10
HEARTBEAT_SECONDS = 30
# Beside other work, a processor's caches are shared, and a slice may take twice its time. What
# holds up the loop by itself does so in each attempt.
ATTEMPTS = 4
NO_MATCH = "&".join(f"label=none:{number}" for number in range(16))
READ_BYTES = 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[tuple[InProcessRegistry, float]]:
    """Return a registry that was measured while it loaded."""
    store = MemoryStore(rows(NODES))
    async with in_process_registry(
        store=store, load=False, level="error", record_audit=False
    ) as registry:
        components = registry.components
        with IndexRefresher(components.index, components.directory) as refresher:
            with task_steps() as steps:
                await asyncio.create_task(components.nodes.load(components.slices))
                await asyncio.create_task(refresher.refresh())
            yield registry, max(steps)


def fetch(address: tuple[str, int], path: str, headers: Mapping[str, str]) -> int:
    """Read an answer in a thread; return its size."""
    connection = http.client.HTTPConnection(*address)
    connection.request("GET", path, headers={"Authorization": f"Bearer {OPS}", **headers})
    response = connection.getresponse()
    size = 0
    while data := response.read(READ_BYTES):
        size += len(data)
    connection.close()
    assert response.status == 200
    return size


async def ask(
    registry: InProcessRegistry, path: str, *, clients: int = 1, coding: str = "identity"
) -> tuple[float, Sequence[int]]:
    """Return the longest slice while so many clients asked at once, and what each read."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(clients) as threads, task_steps() as steps:
        sizes = await asyncio.gather(
            *[
                loop.run_in_executor(
                    threads, fetch, registry.address, path, {"Accept-Encoding": coding}
                )
                for _ in range(clients)
            ]
        )
    return max(steps), sizes


async def test_the_load_at_the_start(fleet: tuple[InProcessRegistry, float]) -> None:
    registry, worst = fleet

    assert worst < MAX_SLICE_SECONDS
    assert len(registry.components.directory) == NODES


@pytest.mark.parametrize("clients", [1, CLIENTS])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(
    "path",
    [
        "/nodes",
        "/nodes?label=service:web",
        f"/nodes?{NO_MATCH}",
        "/nodes?max_age=30",
        "/nodes?limit=30000&after=web-05",
        "/prometheus/node?format=http_sd",
        "/prometheus/web",
        "/metrics",
    ],
)
async def test_any_read(
    fleet: tuple[InProcessRegistry, float], path: str, coding: str, clients: int
) -> None:
    registry, _ = fleet

    worst, sizes = await ask(registry, path, clients=clients, coding=coding)
    for _ in range(ATTEMPTS - 1):
        if worst >= MAX_SLICE_SECONDS:
            worst, sizes = await ask(registry, path, clients=clients, coding=coding)

    assert worst < MAX_SLICE_SECONDS
    if path != "/metrics":
        assert len(set(sizes)) == 1


async def test_half_the_fleet_becomes_stale_and_expires_at_once(
    fleet: tuple[InProcessRegistry, float],
) -> None:
    registry, _ = fleet
    worst = [await age_half(registry) for _ in range(ATTEMPTS)]

    assert min(stale for stale, _ in worst) < MAX_SLICE_SECONDS
    assert min(expired for _, expired in worst) < MAX_SLICE_SECONDS


async def age_half(registry: InProcessRegistry) -> tuple[float, float]:
    """Return the longest slices while half of the nodes become stale, and while they expire."""
    nodes, directory = registry.components.nodes, registry.components.directory
    registry.clock.pass_seconds(50)
    silent, heard = list(directory.fresh())[::2], list(directory.fresh())[1::2]
    gc.freeze()  # or the garbage collector would look at these lists, in the registry's slices
    hear(registry, heard)
    registry.clock.pass_seconds(20)
    with task_steps() as stale:
        await asyncio.create_task(registry.components.queries.update_ages())
    assert nodes.state_counts() == (NODES // 2, NODES // 2)
    registry.clock.pass_seconds(86_290)
    hear(registry, heard)
    with task_steps() as expired:
        await asyncio.create_task(registry.components.queries.update_ages())
    assert nodes.state_counts() == (NODES // 2, 0)
    for some in batched(registry, silent):
        for entry in some:
            directory.put(entry, heard=registry.clock.uptime)
    await nodes.delete_expired()
    return max(stale), max(expired)


def hear(registry: InProcessRegistry, entries: Sequence[Entry]) -> None:
    """Hear of nodes, spread over the seconds between two heartbeats."""
    for some in batched(registry, entries):
        for entry in some:
            registry.components.directory.heard(
                entry, last_update=entry.last_update, heard=registry.clock.uptime
            )


def batched(registry: InProcessRegistry, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Return those of each second between two heartbeats; the clock goes on."""
    for second in range(HEARTBEAT_SECONDS):
        registry.clock.pass_seconds(1)
        yield entries[second::HEARTBEAT_SECONDS]
