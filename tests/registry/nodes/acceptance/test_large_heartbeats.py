"""How many bytes of large heartbeats a host may send."""

import pytest

from config.registry import NodesSettings
from registry.errors import StoreUnreachable
from registry.nodes.limits import Limits, RateLimit
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import clocks_of, context_of, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

LIMITS = NodesSettings(warm_up_seconds=0, changes_per_minute=2)
LARGE = {f"k{number}": "v" * 15_000 for number in range(60)}  # 0.86 MiB


@pytest.mark.slow
async def test_beyond_the_changes_in_bytes_a_different_large_heartbeat_is_429() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        for label in ("first", "second"):
            assert (await registry.post("web-1", [label], LARGE)).status == 200

        answer = await registry.post("web-1", ["third"], LARGE)
        assert answer.status == 429
        assert answer.json()["message"].startswith("web-1 sends more than 2 MiB a minute of")
        assert (await registry.counts())["rate"] == 1

        assert (await registry.post("web-1", ["second"], LARGE)).status == 200  # the same bytes
        assert (await registry.post("web-2", ["third"], LARGE)).status == 200
        registry.clock.pass_seconds(int(answer.headers["Retry-After"]))
        answer = await registry.post("web-1", ["third"], LARGE)
        assert "changes more often than 2 times a minute" in answer.json()["message"]
        assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["second"]


@pytest.mark.slow
async def test_an_unchanged_large_heartbeat_that_waits_for_the_store_is_no_different_one() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        assert (await registry.post("web-1", ["first"], LARGE)).status == 200
        registry.store.is_current = False

        for number in range(1, 5):
            assert (await registry.post("web-1", ["first"], LARGE)).status == 200
            assert registry.store.catch_ups == number
        assert (await registry.post("web-1", ["second"], LARGE)).status == 200
        assert (await registry.post("web-1", ["third"], LARGE)).status == 429

        assert await registry.counts() == {
            **dict.fromkeys(["clone", "store", "capacity"], 0),
            **dict.fromkeys(["added", "changed", "rate"], 1),
            "unchanged": 4,
        }


@pytest.mark.slow
async def test_a_large_heartbeat_that_waits_for_the_store_is_refused_with_it() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        assert (await registry.post("web-1", ["first"], LARGE)).status == 200
        registry.store.is_current = False
        registry.store.failure = StoreUnreachable("the servers are away")

        registry.clock.pass_seconds(60)
        assert (await registry.post("web-1", ["first"], LARGE)).status == 503
        registry.clock.pass_seconds(60)

        assert (await registry.counts())["store"] == 1
        assert registry.components.nodes.state_counts() == (1, 0)  # it is alive


@pytest.mark.slow
async def test_a_large_heartbeat_that_is_refused_counts_too() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        statuses = [
            (await registry.post("web-1", ["a\n"], LARGE)).status  # a control character
            for _ in range(3)
        ]
        assert statuses == [400, 400, 429]
        assert (await registry.post("web-1", ["small"])).status == 200


@pytest.mark.slow
async def test_a_large_heartbeat_with_equal_content_in_other_bytes_changes_nothing() -> None:
    limits = NodesSettings(warm_up_seconds=0, changes_per_minute=1)
    half = dict(list(LARGE.items())[:30])
    async with in_process_registry(limits=limits) as registry:
        assert (await registry.post("web-1", ["a"], half)).status == 200
        assert (await registry.post("web-1", ["a", "a"], half)).status == 200
        assert (await registry.counts())["unchanged"] == 1


def test_without_a_limit_of_changes_there_is_none_of_bytes() -> None:
    limits = Limits(context_of(MemoryStore(), clocks_of(ManualClock())))
    for _ in range(1000):
        limits.take_bytes("a", bytes(1024 * 1024))


def test_an_amount_waits_until_so_much_was_added() -> None:
    clock = ManualClock()
    limit = RateLimit(per_minute=60, steady=clock)
    assert not limit.take("a", 50)
    assert limit.take("a", 30) == pytest.approx(20)
    assert not limit.take("a", 10)
    clock.now += 20
    assert limit.take("a", 30) == pytest.approx(10)
    assert not limit.take("a", 20)
