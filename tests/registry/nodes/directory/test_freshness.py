"""Stale, expired, cloned; and whose clock counts."""

from typing import Any

import pytest

from registry.errors import StoreFull
from registry.nodes.changes import REGISTRY
from registry.store.protocol import Row
from tests.support.registry.in_process import (
    InProcessRegistry,
    ManualClocks,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore

DAY = 86_400


def row(hostname: str, *, age: float = 0.0, labels: str = "") -> Row:
    document = b'{"labels":[%b],"kv":{}}' % labels.encode()
    return Row(hostname, document, 1_600_000_000, "127.0.0.1", age)


async def states(registry: InProcessRegistry) -> dict[str, float]:
    text = (await registry.ask("GET", "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("rollcall_registry_nodes{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


async def listed(registry: InProcessRegistry, query: str = "") -> list[str]:
    return [node["hostname"] for node in await registry.get(f"/nodes{query}")]


async def targets(registry: InProcessRegistry) -> Any:
    return await registry.get("/prometheus/web?format=http_sd")


@pytest.mark.slow
async def test_a_silent_node_goes_stale_stays_listed_and_stays_a_target(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["prometheus:web"])
    before = await targets(registry)
    registry.clock.pass_seconds(89.9)
    assert await states(registry) == {"fresh": 1, "stale": 0}

    registry.clock.pass_seconds(0.1)

    assert await states(registry) == {"fresh": 0, "stale": 1}
    assert await listed(registry) == ["web-1"]
    assert await targets(registry) == before


async def test_a_stale_node_that_is_heard_of_is_fresh(registry: InProcessRegistry) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(100)
    await registry.post("web-1")

    assert await states(registry) == {"fresh": 1, "stale": 0}


async def test_a_node_is_forgotten_when_it_expires(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["prometheus:web"])
    registry.clock.pass_seconds(10)
    await registry.post("web-2", ["prometheus:web"])
    registry.clock.pass_seconds(DAY - 11)
    assert await listed(registry) == ["web-1", "web-2"]

    registry.clock.pass_seconds(1)

    assert await listed(registry) == ["web-2"]
    assert (await registry.ask("GET", "/nodes/web-1")).status == 404
    assert [group["targets"] for group in await targets(registry)] == [["web-2:9100"]]
    await registry.components.nodes.writes.delete_expired()
    assert "web-1" not in registry.store.rows
    assert registry.audit[-1] == ("expired", "web-1", REGISTRY)


async def test_an_expired_node_is_gone_from_every_read_even_before_the_next_tick(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["prometheus:web"])
    await targets(registry)
    registry.clock.pass_seconds(DAY)

    assert await targets(registry) == []


async def test_a_node_that_expired_may_come_back_at_once(registry: InProcessRegistry) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(DAY)

    await registry.post("web-1")

    assert await listed(registry) == ["web-1"]
    assert list(registry.store.rows) == ["web-1"]


async def test_stale_nodes_are_listed_apart(registry: InProcessRegistry) -> None:
    await registry.post("web-1")
    await registry.post("web-2")
    registry.clock.pass_seconds(90)
    await registry.post("web-2")

    assert await listed(registry, "?stale=true") == ["web-1"]
    assert await listed(registry, "?stale=false") == ["web-2"]
    assert await listed(registry, "?stale=true&label=service:db") == []

    await registry.post("web-1")

    assert await listed(registry, "?stale=true") == []
    assert await listed(registry, "?stale=false") == ["web-1", "web-2"]


async def test_with_zero_nothing_ever_expires() -> None:
    async with in_process_registry(expire_after=0) as registry:
        await registry.post("web-1")
        registry.clock.pass_seconds(1000 * DAY)

        assert await listed(registry) == ["web-1"]


async def test_nothing_expires_until_every_host_had_the_time_to_report() -> None:
    store = MemoryStore([row("web-1", age=DAY - 1), row("web-2", age=5)])
    async with in_process_registry(store=store) as registry:
        registry.clock.pass_seconds(89)
        assert await listed(registry) == ["web-1", "web-2"]

        registry.clock.pass_seconds(1)

        assert await listed(registry) == ["web-2"]


async def test_the_age_goes_on_after_a_restart_where_it_was() -> None:
    async with in_process_registry(store=MemoryStore([row("web-1", age=80)])) as registry:
        assert await states(registry) == {"fresh": 1, "stale": 0}
        registry.clock.pass_seconds(10)
        assert await states(registry) == {"fresh": 0, "stale": 1}


@pytest.mark.slow
async def test_a_wall_clock_that_jumps_moves_last_update_and_nothing_else(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    for jump in (-DAY * 365, DAY * 365 * 2, -3600, 3600):
        registry.clock.wall += jump
        await registry.post("web-2")

        assert await listed(registry) == ["web-1", "web-2"]
        assert await states(registry) == {"fresh": 2, "stale": 0}
        assert (await registry.get("/nodes?max_age=1"))[0]["hostname"] == "web-1"
        (node,) = await registry.get("/nodes/web-2")
        assert node["last_update"] == int(registry.clock.wall)


async def test_a_node_is_not_forgotten_while_the_store_cannot_forget_it_but_at_the_next_start(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(DAY)
    registry.store.failure = StoreFull("full")

    assert await listed(registry) == []
    assert "web-1" in registry.store.rows


@pytest.mark.slow
async def test_a_clone_of_a_fresh_host_is_409_and_both_are_named(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"], {"agent.id": "first"})
    registry.clock.pass_seconds(42)

    answer = await registry.post("web-1", ["b"], {"agent.id": "second"})

    assert answer.status == 409
    for word in ("first", "second", "127.0.0.1", "42 s"):
        assert word in answer.json()["message"]
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["a"]
    assert (await registry.counts())["clone"] == 1
    metrics = (await registry.ask("GET", "/metrics")).body
    assert b'rollcall_registry_heartbeats_refused_total{reason="clone"} 1.0' in metrics


async def test_the_newcomer_takes_over_a_stale_host(registry: InProcessRegistry) -> None:
    await registry.post("web-1", [], {"agent.id": "first"})
    registry.clock.pass_seconds(90)

    assert (await registry.post("web-1", [], {"agent.id": "second"})).status == 200
    assert (await registry.post("web-1", [], {"agent.id": "first"})).status == 409


async def test_deleting_the_holder_lets_the_newcomer_in(registry: InProcessRegistry) -> None:
    await registry.post("web-1", [], {"agent.id": "first"})
    await registry.ask("DELETE", "/nodes/web-1")

    assert (await registry.post("web-1", [], {"agent.id": "second"})).status == 200


async def test_without_an_identity_on_both_sides_nothing_is_a_clone(
    registry: InProcessRegistry,
) -> None:
    assert (await registry.post("web-1", [], {})).status == 200
    assert (await registry.post("web-1", [], {"agent.id": "first"})).status == 200
    assert (await registry.post("web-1", ["edited"], {})).status == 200


async def test_a_restart_does_not_let_a_clone_in() -> None:
    document = b'{"labels":[],"kv":{"agent.id":"first"}}'
    store = MemoryStore([Row("web-1", document, 1_600_000_000, "192.0.2.7", 20.0)])
    async with in_process_registry(store=store, clock=ManualClocks()) as registry:
        answer = await registry.post("web-1", [], {"agent.id": "second"})

        assert answer.status == 409
        assert "192.0.2.7" in answer.json()["message"]
