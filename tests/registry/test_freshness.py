"""Stale, expired, cloned; and whose clock counts."""

from typing import Any

from registry.changes import REGISTRY
from registry.store import Row, StoreFull
from tests.registry.service import Clock, MemoryStore, Service, serving

DAY = 86_400


def row(hostname: str, *, age: float = 0.0, labels: str = "") -> Row:
    document = b'{"labels":[%b],"kv":{}}' % labels.encode()
    return Row(hostname, document, 1_600_000_000, "127.0.0.1", age)


async def states(service: Service) -> dict[str, float]:
    text = (await service.ask("GET", "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("rollcall_registry_nodes{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


async def listed(service: Service) -> list[str]:
    return [node["hostname"] for node in await service.get("/nodes")]


async def targets(service: Service) -> Any:
    return await service.get("/prometheus/web?format=http_sd")


async def test_a_silent_node_goes_stale_stays_listed_and_stays_a_target(service: Service) -> None:
    await service.post("web-1", ["prometheus:web"])
    before = await targets(service)
    service.clock.pass_seconds(89.9)
    assert await states(service) == {"fresh": 1, "stale": 0}

    service.clock.pass_seconds(0.1)

    assert await states(service) == {"fresh": 0, "stale": 1}
    assert await listed(service) == ["web-1"]
    assert await targets(service) == before


async def test_a_stale_node_that_is_heard_of_is_fresh(service: Service) -> None:
    await service.post("web-1")
    service.clock.pass_seconds(100)
    await service.post("web-1")

    assert await states(service) == {"fresh": 1, "stale": 0}


async def test_a_node_is_forgotten_when_it_expires(service: Service) -> None:
    await service.post("web-1", ["prometheus:web"])
    service.clock.pass_seconds(10)
    await service.post("web-2", ["prometheus:web"])
    service.clock.pass_seconds(DAY - 11)
    assert await listed(service) == ["web-1", "web-2"]

    service.clock.pass_seconds(1)

    assert await listed(service) == ["web-2"]
    assert (await service.ask("GET", "/nodes/web-1")).status == 404
    assert [group["targets"] for group in await targets(service)] == [["web-2:9100"]]
    assert "web-1" not in service.store.rows
    assert service.audit[-1] == ("expired", "web-1", REGISTRY)


async def test_an_expired_node_is_gone_from_every_read_even_before_the_next_tick(
    service: Service,
) -> None:
    await service.post("web-1", ["prometheus:web"])
    await targets(service)
    service.clock.pass_seconds(DAY)

    assert await targets(service) == []


async def test_a_node_that_expired_may_come_back_at_once(service: Service) -> None:
    await service.post("web-1")
    service.clock.pass_seconds(DAY)

    await service.post("web-1")

    assert await listed(service) == ["web-1"]
    assert list(service.store.rows) == ["web-1"]


async def test_with_zero_nothing_ever_expires() -> None:
    async with serving(expire_after=0) as service:
        await service.post("web-1")
        service.clock.pass_seconds(1000 * DAY)

        assert await listed(service) == ["web-1"]


async def test_nothing_expires_until_every_host_had_the_time_to_report() -> None:
    store = MemoryStore([row("web-1", age=DAY - 1), row("web-2", age=5)])
    async with serving(store=store) as service:
        service.clock.pass_seconds(89)
        assert await listed(service) == ["web-1", "web-2"]

        service.clock.pass_seconds(1)

        assert await listed(service) == ["web-2"]


async def test_the_age_goes_on_after_a_restart_where_it_was() -> None:
    async with serving(store=MemoryStore([row("web-1", age=80)])) as service:
        assert await states(service) == {"fresh": 1, "stale": 0}
        service.clock.pass_seconds(10)
        assert await states(service) == {"fresh": 0, "stale": 1}


async def test_a_wall_clock_that_jumps_moves_last_update_and_nothing_else(
    service: Service,
) -> None:
    await service.post("web-1")
    for jump in (-DAY * 365, DAY * 365 * 2, -3600, 3600):
        service.clock.wall += jump
        await service.post("web-2")

        assert await listed(service) == ["web-1", "web-2"]
        assert await states(service) == {"fresh": 2, "stale": 0}
        assert (await service.get("/nodes?max_age=1"))[0]["hostname"] == "web-1"
        (node,) = await service.get("/nodes/web-2")
        assert node["last_update"] == int(service.clock.wall)


async def test_a_node_is_not_forgotten_while_the_store_cannot_forget_it_but_at_the_next_start(
    service: Service,
) -> None:
    await service.post("web-1")
    service.clock.pass_seconds(DAY)
    service.store.failure = StoreFull("full")

    assert await listed(service) == []
    assert "web-1" in service.store.rows


async def test_a_clone_of_a_fresh_host_is_409_and_both_are_named(service: Service) -> None:
    await service.post("web-1", ["a"], {"agent.id": "first"})
    service.clock.pass_seconds(42)

    answer = await service.post("web-1", ["b"], {"agent.id": "second"})

    assert answer.status == 409
    for word in ("first", "second", "127.0.0.1", "42 s"):
        assert word in answer.json()["message"]
    assert (await service.get("/nodes/web-1"))[0]["labels"] == ["a"]
    assert service.registry.nodes.counts.clones == 1
    metrics = (await service.ask("GET", "/metrics")).body
    assert b'rollcall_registry_heartbeats_refused_total{reason="clone"} 1.0' in metrics


async def test_the_newcomer_takes_over_a_stale_host(service: Service) -> None:
    await service.post("web-1", [], {"agent.id": "first"})
    service.clock.pass_seconds(90)

    assert (await service.post("web-1", [], {"agent.id": "second"})).status == 200
    assert (await service.post("web-1", [], {"agent.id": "first"})).status == 409


async def test_deleting_the_holder_lets_the_newcomer_in(service: Service) -> None:
    await service.post("web-1", [], {"agent.id": "first"})
    await service.ask("DELETE", "/nodes/web-1")

    assert (await service.post("web-1", [], {"agent.id": "second"})).status == 200


async def test_without_an_identity_on_both_sides_nothing_is_a_clone(service: Service) -> None:
    assert (await service.post("web-1", [], {})).status == 200
    assert (await service.post("web-1", [], {"agent.id": "first"})).status == 200
    assert (await service.post("web-1", ["edited"], {})).status == 200


async def test_a_restart_does_not_let_a_clone_in() -> None:
    document = b'{"labels":[],"kv":{"agent.id":"first"}}'
    store = MemoryStore([Row("web-1", document, 1_600_000_000, "192.0.2.7", 20.0)])
    async with serving(store=store, clock=Clock()) as service:
        answer = await service.post("web-1", [], {"agent.id": "second"})

        assert answer.status == 409
        assert "192.0.2.7" in answer.json()["message"]
