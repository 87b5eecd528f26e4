"""A registry whose store is new or was put back withholds targets until all hosts had the time."""

import pytest

from config.registry import NodesSettings
from registry.errors import StoreFull, TooManyConflicts
from registry.store.protocol import Row
from tests.support.registry.in_process import (
    NO_LIMITS,
    WEB_HOSTS,
    InProcessRegistry,
    RegistryResponse,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore

OLD = Row("web-1", b'{"labels":["prometheus:web"],"kv":{}}', 1_600_000_000, "127.0.0.1", 10.0)
LIMITS = NodesSettings(warm_up_seconds=90)
TARGETS = "/prometheus/web?format=http_sd"


async def read(registry: InProcessRegistry, path: str) -> RegistryResponse:
    return await registry.ask("GET", path)


async def metric(registry: InProcessRegistry) -> float:
    lines = (await read(registry, "/metrics")).body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("rollcall_registry_warming_seconds ")]
    return float(line.split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[], [OLD]])
async def test_targets_are_withheld_and_the_rest_is_served(rows: list[Row]) -> None:
    store = MemoryStore(rows, continues=False)
    async with in_process_registry(store=store, limits=LIMITS) as registry:
        assert (await registry.post("web-2", ["prometheus:web"])).status == 200
        registry.clock.pass_seconds(20)

        for path in (TARGETS, "/prometheus/web", "/prometheus/none"):
            answer = await read(registry, path)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "70")
            assert "warming up" in answer.json()["message"]
            assert "Rollcall-Warming" not in answer.headers

        listing = await read(registry, "/nodes")
        assert [node["hostname"] for node in listing.json()] == [
            *[r.hostname for r in rows],
            "web-2",
        ]
        for path, status in (
            ("/nodes", 200),
            ("/nodes/web-2", 200),
            ("/nodes/web-3", 404),
            ("/nodes?label=no", 200),
        ):
            answer = await read(registry, path)
            assert (answer.status, answer.headers["Rollcall-Warming"]) == (status, "70")
        for key in (None, WEB_HOSTS):
            answer = await registry.ask("GET", "/nodes/web-2", key=key)
            assert answer.status in {401, 403}
            assert "Rollcall-Warming" not in answer.headers
        assert "Rollcall-Warming" not in (await registry.post("web-2", ["prometheus:web"])).headers
        health = await registry.ask("GET", "/healthz", key=None)
        assert (health.status, "warming" in health.json()["message"]) == (200, True)
        assert (await read(registry, "/prometheus/web?explain=web-2")).status == 200
        assert await metric(registry) == 70
        assert not store.continues


async def test_it_is_over_after_its_time() -> None:
    store = MemoryStore([OLD], continues=False)
    async with in_process_registry(store=store, limits=LIMITS) as registry:
        registry.clock.pass_seconds(89.5)
        assert (await read(registry, TARGETS)).status == 503
        await registry.components.warm_up.finish()
        assert not store.continues

        registry.clock.pass_seconds(0.5)

        assert [group["targets"] for group in await registry.get(TARGETS)] == [["web-1:9100"]]
        assert "Rollcall-Warming" not in (await read(registry, "/nodes")).headers
        health = await registry.ask("GET", "/healthz", key=None)
        assert (health.status, health.json()) == (200, {"message": "ok"})
        assert await metric(registry) == 0
        await registry.components.warm_up.finish()
        assert store.continues


async def test_a_store_that_continues_needs_none() -> None:
    async with in_process_registry(store=MemoryStore([OLD]), limits=LIMITS) as registry:
        assert (await read(registry, TARGETS)).status == 200
        assert "Rollcall-Warming" not in (await read(registry, "/nodes")).headers


async def test_zero_turns_it_off() -> None:
    store = MemoryStore(continues=False)
    async with in_process_registry(store=store, limits=NO_LIMITS) as registry:
        assert await registry.get(TARGETS) == []
        await registry.components.warm_up.finish()
        assert store.continues


@pytest.mark.parametrize("failure", [StoreFull("full"), TooManyConflicts("by another registry")])
async def test_a_store_that_cannot_note_its_end_is_asked_again(failure: Exception) -> None:
    store = MemoryStore(continues=False)
    async with in_process_registry(store=store, limits=LIMITS) as registry:
        registry.clock.pass_seconds(90)
        store.failure = failure
        await registry.components.warm_up.finish()
        assert not store.continues
        assert (await read(registry, TARGETS)).status == 200

        store.failure = None
        await registry.components.warm_up.finish()

        assert store.continues


async def test_that_the_end_cannot_be_recorded_is_logged_once_and_so_is_that_it_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = MemoryStore(continues=False)
    async with in_process_registry(store=store, limits=LIMITS) as registry:
        registry.clock.pass_seconds(90)
        store.failure = StoreFull("the stamp cannot be written")
        for _ in range(3):
            await registry.components.warm_up.finish()
        store.failure = None
        for _ in range(3):
            await registry.components.warm_up.finish()

    logged = [line for line in capsys.readouterr().out.splitlines() if "recorded" in line]
    assert len(logged) == 2
    assert "a restart begins it anew" in logged[0]
    assert "the stamp cannot be written" in logged[0]


async def test_while_the_store_is_read_that_is_the_reason_that_is_reported() -> None:
    store = MemoryStore([OLD], continues=False)
    async with in_process_registry(store=store, limits=LIMITS, load=False) as registry:
        answer = await read(registry, TARGETS)

        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "still being read" in answer.json()["message"]
