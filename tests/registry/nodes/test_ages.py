"""When nodes are stale and expire, which are held, and which host may take over a name."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from registry.errors import StoreFull
from registry.nodes.changes import REGISTRY
from registry.store.protocol import Row
from tests.support.registry.in_process import (
    NO_LIMITS,
    InProcessRegistry,
    ManualClocks,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.stores.shared_store import SharedLog
from tests.support.waiting import async_until

DAY, HOUR, MINUTE = 86_400, 3600, 60
HOSTS = 200
LIMITED = msgspec.structs.replace(NO_LIMITS, expire_at_most_percent=10)


def silent_hosts(count: int, *, within: float) -> list[Row]:
    """Return hosts that were cut off together, whose last heartbeats came within some seconds."""
    document = b'{"labels":["prometheus:web"],"kv":{}}'
    return [
        Row(f"web-{number:04}", document, 1_600_000_000, "-", within * number / count)
        for number in range(count)
    ]


async def pass_time(registry: InProcessRegistry, seconds: int, *, step: int) -> None:
    """Let time pass, and the registry look at ages now and then."""
    for _ in range(0, seconds, step):
        registry.clock.pass_seconds(step)
        await registry.components.queries.update_ages()


async def beat(registry: InProcessRegistry, hostnames: Sequence[str]) -> None:
    for hostname in hostnames:
        assert (await registry.post(hostname, ["prometheus:web"])).status == 200


async def counts(registry: InProcessRegistry) -> tuple[int, int]:
    """Return how many nodes are known, and how many of them are held, by /status."""
    nodes = (await registry.get("/status"))["nodes"]
    return nodes["total"], nodes["held"]


async def listed(registry: InProcessRegistry, query: str = "") -> list[str]:
    return [node["hostname"] for node in await registry.get(f"/nodes{query}")]


@pytest.mark.parametrize("within", [30, 20 * MINUTE])
async def test_a_site_that_was_cut_off_is_held_and_stays_in_every_list(within: int) -> None:
    store = MemoryStore(silent_hosts(HOSTS, within=within))
    async with in_process_registry(store=store, limits=LIMITED) as registry:
        await pass_time(registry, DAY - HOUR, step=HOUR)
        await pass_time(registry, HOUR, step=10)
        assert await counts(registry) == (HOSTS, HOSTS)
        await pass_time(registry, 5 * DAY, step=HOUR)

        assert await counts(registry) == (HOSTS, HOSTS)
        assert len(await listed(registry, "?stale=true")) == HOSTS
        assert len(await listed(registry, "?held=true")) == HOSTS
        assert await listed(registry, "?held=false") == []
        assert len(await registry.get("/prometheus/web?format=http_sd")) == HOSTS
        metrics = (await registry.ask("GET", "/metrics")).body.decode()
        assert f"rollcall_registry_nodes_held {HOSTS}.0" in metrics
        assert 'rollcall_registry_nodes_forgotten_total{reason="expired"} 0.0' in metrics

        await pass_time(registry, DAY + 1, step=HOUR)
        assert await counts(registry) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("within", [30, 20 * MINUTE])
async def test_where_a_few_of_many_hosts_are_gone_all_of_them_expire(within: int) -> None:
    silent, living = HOSTS // 20, [f"db-{number}" for number in range(HOSTS - HOSTS // 20)]
    store = MemoryStore(silent_hosts(silent, within=within))
    async with in_process_registry(store=store, limits=LIMITED) as registry:
        await beat(registry, living)
        await pass_time(registry, DAY - MINUTE, step=MINUTE)
        await beat(registry, living)
        for _ in range(MINUTE):
            await pass_time(registry, 1, step=1)
            assert (await counts(registry))[1] == 0

        assert await listed(registry) == sorted(living)


async def test_the_share_is_of_the_nodes_before_the_first_of_them_expired() -> None:
    store = MemoryStore(silent_hosts(10, within=5))
    async with in_process_registry(store=store, limits=LIMITED) as registry:
        await beat(registry, [f"db-{number}" for number in range(90)])
        registry.clock.pass_seconds(DAY - MINUTE)
        await beat(registry, [f"db-{number}" for number in range(90)])
        await pass_time(registry, MINUTE, step=1)

        assert await counts(registry) == (90, 0)


async def test_of_a_few_hosts_one_expires_and_two_together_are_held_until_one_is_back() -> None:
    async with in_process_registry(limits=LIMITED) as registry:
        await beat(registry, ["a", "b", "c"])
        registry.clock.pass_seconds(DAY - HOUR)
        await beat(registry, ["b", "c"])
        registry.clock.pass_seconds(HOUR)
        assert await listed(registry) == ["b", "c"]

        registry.clock.pass_seconds(DAY)
        assert await listed(registry, "?held=true") == ["b", "c"]

        await beat(registry, ["b"])
        assert await listed(registry) == ["b"]


async def fall_silent(registry: InProcessRegistry, hosts: int, minutes: Sequence[int]) -> None:
    """Let some of the hosts be due after so many minutes from now, a day after their last one."""
    names = [f"web-{number:02}" for number in range(hosts)]
    await beat(registry, names[len(minutes) :])
    now = 0
    for hostname, minute in zip(names, minutes, strict=False):
        await pass_time(registry, (minute - now) * MINUTE, step=MINUTE)
        now = minute
        await beat(registry, [hostname])
    registry.clock.pass_seconds(DAY - (now + 1) * MINUTE)
    await beat(registry, names[len(minutes) :])
    await pass_time(registry, MINUTE, step=1)


async def test_those_that_are_due_within_the_next_hour_count() -> None:
    async with in_process_registry(limits=LIMITED) as registry:
        await fall_silent(registry, 40, minutes=[0, 10, 20, 30, 40])
        assert await listed(registry, "?held=true") == ["web-00"]

        await beat(registry, ["web-04"])

        assert await counts(registry) == (39, 0)


async def test_those_that_expired_within_the_last_hour_count() -> None:
    async with in_process_registry(limits=LIMITED) as registry:
        await fall_silent(registry, 60, minutes=[0, 0, 0, 0, 50, 50, 90, 90])
        assert await counts(registry) == (56, 0)

        await pass_time(registry, 59 * MINUTE, step=MINUTE)
        assert await listed(registry, "?held=true") == ["web-04", "web-05"]

        await pass_time(registry, MINUTE, step=1)
        assert await counts(registry) == (54, 0)


async def test_with_zero_percent_all_that_are_due_expire_together() -> None:
    store = MemoryStore(silent_hosts(HOSTS, within=30))
    async with in_process_registry(store=store) as registry:
        registry.clock.pass_seconds(DAY)

        assert await listed(registry) == []


async def test_a_host_that_is_back_is_not_held_and_not_forgotten_with_those_that_are() -> None:
    store = MemoryStore(silent_hosts(10, within=30))
    async with in_process_registry(store=store, limits=LIMITED) as registry:
        registry.clock.pass_seconds(2 * DAY)
        held = await listed(registry, "?held=true")
        await beat(registry, held[:1])

        rejected = await registry.ask("DELETE", f"/nodes/{held[0]}?stale=true")
        forgotten = await registry.ask("DELETE", f"/nodes/{held[1]}?stale=true")

        assert (rejected.status, forgotten.status) == (409, 200)
        assert held[0] in rejected.json()["message"]
        assert await listed(registry) == [held[0], *held[2:]]


async def test_a_restart_among_them_forgets_none_and_goes_on_to_show_that_they_are_held() -> None:
    rows = [row._replace(age=row.age + DAY) for row in silent_hosts(HOSTS, within=30)]
    async with in_process_registry(store=MemoryStore(rows), limits=LIMITED) as registry:
        await registry.components.queries.update_ages()
        assert await counts(registry) == (HOSTS, HOSTS)
        assert len(await listed(registry, "?held=true")) == HOSTS
        await pass_time(registry, HOUR, step=MINUTE)

        assert await counts(registry) == (HOSTS, HOSTS)


async def test_none_expires_until_a_restarted_registry_knows_what_expired_within_an_hour() -> None:
    silent, soon, living = silent_hosts(56, within=0)[:2], ["db-1", "db-2"], range(52)
    rows = [row._replace(age=DAY) for row in silent]
    rows += [silent[0]._replace(hostname=name, age=DAY - 40 * MINUTE) for name in soon]
    rows += [silent[0]._replace(hostname=f"living-{number:02}") for number in living]
    async with in_process_registry(store=MemoryStore(rows), limits=LIMITED) as registry:
        await pass_time(registry, 59 * MINUTE, step=MINUTE)
        assert await counts(registry) == (56, 0)  # they are few, as far as it knows
        assert await listed(registry, "?held=true") == []
        assert len(await listed(registry, "?stale=true")) == 56

        await pass_time(registry, MINUTE, step=1)
        assert await listed(registry) == [f"living-{number:02}" for number in living]


async def test_registries_that_share_a_store_hold_and_forget_the_same_nodes() -> None:
    log, clock = SharedLog(7), ManualClocks()
    hosts = [f"web-{number:02}" for number in range(20)]
    async with (
        in_process_registry(store=log.store(), clock=clock, limits=LIMITED) as one,
        in_process_registry(store=log.store(), clock=clock, limits=LIMITED) as other,
    ):
        both = (one, other)
        await beat(one, hosts[:10])
        await beat(other, hosts[10:])
        clock.pass_seconds(DAY)
        await async_until(lambda: all_know(both, total=20, held=20))

        for hostname in hosts[:17]:
            await other.post(hostname, ["back"])
        await async_until(lambda: all_know(both, total=20, held=3))
        await one.post(hosts[17], ["back"])
        await async_until(lambda: all_know(both, total=18, held=0))


async def all_know(registries: Sequence[InProcessRegistry], *, total: int, held: int) -> bool:
    for registry in registries:
        await registry.components.nodes.writes.flush()
        await registry.components.queries.update_ages()
        await registry.components.nodes.writes.delete_expired()
    return [await counts(each) for each in registries] == [(total, held)] * len(registries)


DAY = 86_400


def row(hostname: str, *, age: float = 0.0, labels: str = "") -> Row:
    document = b'{"labels":[%b],"kv":{}}' % labels.encode()
    return Row(hostname, document, 1_600_000_000, "127.0.0.1", age)


async def states(registry: InProcessRegistry) -> dict[str, float]:
    text = (await registry.ask("GET", "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("rollcall_registry_nodes{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


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


async def test_a_stale_node_that_is_seen_is_fresh(registry: InProcessRegistry) -> None:
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
    assert b'rollcall_registry_heartbeats_rejected_total{reason="clone"} 1.0' in metrics


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
