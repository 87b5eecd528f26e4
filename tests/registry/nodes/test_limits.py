"""How often a node may change, whichever key says so."""

import msgspec
import pytest

from config.registry import NodesSettings
from registry.nodes.limits import Limits, RateLimit
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import (
    NO_LIMITS,
    OPS,
    WEB_HOSTS,
    clocks_of,
    context_of,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore

LIMITS = NodesSettings(warm_up_seconds=0, changes_per_minute=60)


@pytest.mark.slow
@pytest.mark.parametrize("lane", [True, False])
async def test_beyond_the_burst_a_change_is_429_until_the_next_one_is_due(*, lane: bool) -> None:
    async with in_process_registry(limits=LIMITS, lane=lane) as registry:
        for number in range(60):
            key = (OPS, WEB_HOSTS)[number % 2]
            assert (await registry.post("web-1", [str(number)], key=key)).status == 200

        for key in (OPS, WEB_HOSTS):
            answer = await registry.post("web-1", ["more"], key=key)
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "1"
            assert "web-1 changes more often than 60 times a minute" in answer.json()["message"]

        assert (await registry.post("web-1", ["59"])).status == 200  # it changes nothing
        assert (await registry.post("web-2", ["another"])).status == 200
        assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["59"]
        counts = await registry.counts()
        assert (counts["rate"], counts["unchanged"]) == (2, 1)
        registry.clock.pass_seconds(1)
        assert (await registry.post("web-1", ["more"])).status == 200
        assert (await registry.post("web-1", ["yet more"])).status == 429


@pytest.mark.slow
async def test_a_host_that_changes_too_often_is_not_silent() -> None:
    limits = msgspec.structs.replace(NO_LIMITS, changes_per_minute=1)
    async with in_process_registry(limits=limits, expire_after=100) as registry:
        await registry.post("web-1", ["first"])
        registry.clock.pass_seconds(59)
        assert (await registry.post("web-1", ["second"])).status == 429
        registry.clock.pass_seconds(89)

        metrics = (await registry.ask("GET", "/metrics")).body
        assert b'rollcall_registry_nodes{state="fresh"} 1.0' in metrics
        assert [node["labels"] for node in await registry.get("/nodes")] == [["first"]]


@pytest.mark.slow
async def test_a_node_that_is_deleted_and_added_again_has_the_same_limit() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        statuses = []
        for number in range(61):
            statuses.append((await registry.post("web-1", [str(number)])).status)
            await registry.ask("DELETE", "/nodes/web-1")
        assert statuses == [200] * 60 + [429]


@pytest.mark.slow
async def test_zero_is_no_limit() -> None:
    limits = NodesSettings(warm_up_seconds=0, changes_per_minute=0)
    async with in_process_registry(limits=limits) as registry:
        for number in range(100):
            assert (await registry.post("web-1", [str(number)])).status == 200


def limits_of(changes_per_minute: int, steady: ManualClock) -> Limits:
    limits = NodesSettings(max_mib=0, changes_per_minute=changes_per_minute)
    return Limits(context_of(MemoryStore(), clocks_of(steady), limits=limits))


def taken(limit: Limits, hostname: str, tries: int) -> int:
    """Return how many changes of so many are accepted."""
    return [limit.changes.take(hostname) for _ in range(tries)].count(0)


@pytest.mark.slow
@pytest.mark.parametrize("per_minute", [1, 7, 60, 1000])
def test_over_any_time_the_rate_and_one_burst_are_accepted(per_minute: int) -> None:
    clock = ManualClock()
    limit = limits_of(per_minute, clock)
    assert taken(limit, "a", 2000) == per_minute
    for minutes in (1, 2, 10):
        clock.now += 60 * minutes
        assert taken(limit, "a", 2000) == per_minute
    clock.now += 30
    assert taken(limit, "a", 2000) in {per_minute // 2, (per_minute + 1) // 2}


@pytest.mark.slow
def test_only_hosts_that_changed_within_a_minute_are_remembered() -> None:
    clock = ManualClock()
    limit = RateLimit(per_minute=60, steady=clock)
    largest = 0
    for number in range(20_000):
        clock.now += 0.01
        limit.take(f"host-{number}")
        largest = max(largest, len(limit))

    assert largest <= 101  # each is full again after a second
    clock.now += 60
    for number in range(60):
        limit.take(f"late-{number}")
    assert len(limit) <= 60


@pytest.mark.slow
async def test_a_change_that_only_withdraws_what_serves_does_not_count() -> None:
    limits = msgspec.structs.replace(NO_LIMITS, changes_per_minute=2)
    async with in_process_registry(limits=limits) as registry:
        labels = ["service:web", "app:shop", "serving:shop:20080", "serving:blog:20081", "z:1"]
        assert (await registry.post("web-1", labels)).status == 200
        del labels[2]
        assert (await registry.post("web-1", labels)).status == 200
        del labels[2]
        assert (await registry.post("web-1", labels)).status == 200
        assert (await registry.post("web-1", [*labels, "serving:shop:20080"])).status == 200

        withdrawn_and_more = [each for each in labels if each != "z:1"]
        assert (await registry.post("web-1", withdrawn_and_more)).status == 429
        assert (await registry.post("web-1", labels, {"rack": "r12"})).status == 429
        assert (await registry.post("web-1", labels)).status == 200
