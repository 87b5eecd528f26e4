"""How many bytes of large heartbeats a host may send."""

import asyncio

import pytest

from clients.message import MAX_BODY_BYTES
from config.registry import NodesSettings
from registry.errors import StoreUnavailable, StoreUnreachable
from registry.nodes.limits import MAX_LARGE_BYTES, Limits, RateLimit
from registry.store.protocol import DoneCallback, Guard, Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import (
    InProcessRegistry,
    clocks_of,
    context_of,
    in_process_registry,
)
from tests.support.registry.load.large_nodes import SHAPES, SOURCE, USUAL, accept, body_of, forget
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
async def test_a_large_heartbeat_that_waits_for_the_store_is_rejected_with_it() -> None:
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
async def test_a_large_heartbeat_that_is_rejected_counts_too() -> None:
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


class HeldStore(MemoryStore):
    """A store that writes nodes once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_write = asyncio.Event()

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        del guard
        self.asked.set()
        return asyncio.shield(asyncio.create_task(self._put_later(row, done)))

    async def _put_later(self, row: Row, done: DoneCallback) -> None:
        await self.may_write.wait()
        await super().put(row, done)


LARGE_BODY = body_of(*SHAPES["services"], 0)
MOMENTS = ["while it is prepared", "while the store writes"]


async def begin(registry: InProcessRegistry, moment: str) -> "asyncio.Task[bytes]":
    """Begin to accept a large heartbeat, and return at a moment of that."""
    task = asyncio.create_task(accept(registry.components.nodes, "large", LARGE_BODY))
    await asyncio.sleep(0)
    if moment == MOMENTS[1]:
        assert isinstance(registry.store, HeldStore)
        await registry.store.asked.wait()
    return task


@pytest.mark.slow
@pytest.mark.parametrize("known", [None, USUAL, LARGE_BODY.replace(b"prometheus:s0:", b"other:")])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_large_heartbeat_whose_client_leaves_leaves_nothing_reserved(
    moment: str, known: bytes | None
) -> None:
    store = HeldStore()
    async with in_process_registry(store=store) as registry:
        nodes = registry.components.nodes
        if known is not None:
            store.may_write.set()
            await accept(nodes, "large", known)
            store.may_write.clear()
            store.asked.clear()
        before = nodes.limits.capacity.used_bytes
        task = await begin(registry, moment)

        task.cancel()
        await asyncio.wait([task])
        store.may_write.set()
        await accept(nodes, "another", USUAL)  # the store writes in order

        await registry.components.nodes.delete("another", SOURCE)
        if moment == MOMENTS[0]:
            assert nodes.limits.capacity.used_bytes == before
        else:  # what the store was given is written
            assert store.rows["large"].document == LARGE_BODY
        await forget(registry)
        assert nodes.limits.capacity.used_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_large_heartbeat_of_a_node_that_is_deleted_meanwhile(moment: str) -> None:
    store = HeldStore()
    async with in_process_registry(store=store) as registry:
        nodes = registry.components.nodes
        store.may_write.set()
        await accept(nodes, "large", USUAL)
        store.may_write.clear()
        store.asked.clear()
        task = await begin(registry, moment)

        deletion = asyncio.create_task(forget(registry))
        store.may_write.set()
        await asyncio.gather(task, deletion)

        await forget(registry)
        assert nodes.limits.capacity.used_bytes == 0


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_large_heartbeat_that_the_store_rejects_leaves_nothing_reserved(
    moment: str,
) -> None:
    store = HeldStore()
    async with in_process_registry(store=store) as registry:
        nodes = registry.components.nodes
        task = await begin(registry, moment)

        store.failure = StoreUnavailable("the disk is gone")
        store.may_write.set()

        with pytest.raises(StoreUnavailable):
            await task
        assert nodes.limits.capacity.used_bytes == 0


@pytest.mark.slow
async def test_many_large_heartbeats_of_one_host_at_once_are_counted_once() -> None:
    async with in_process_registry() as registry:
        nodes = registry.components.nodes
        bodies = [body_of(*SHAPES["services"], number) for number in range(5)]
        await asyncio.gather(*[accept(nodes, "large", body) for body in [*bodies, USUAL]])
        await accept(nodes, "large", USUAL)
        several = nodes.limits.capacity.used_bytes
        await forget(registry)
        assert nodes.limits.capacity.used_bytes == 0
        await accept(nodes, "large", USUAL)
        assert nodes.limits.capacity.used_bytes == several


@pytest.mark.slow
async def test_so_many_large_heartbeats_at_once_take_a_bounded_amount_of_memory() -> None:
    store = HeldStore()
    async with in_process_registry(store=store) as registry:
        kv = {f"k{number}": "x" * 16_000 for number in range(60)}
        sent = [
            asyncio.create_task(registry.post(f"large-{number}", [], kv)) for number in range(40)
        ]
        await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        store.may_write.set()
        answers = [await each for each in sent]

        rejected = [each for each in answers if each.status == 503]
        assert 0 < len(rejected) <= len(answers) - MAX_LARGE_BYTES // MAX_BODY_BYTES
        assert {each.status for each in answers} == {200, 503}
        assert all(each.headers["Retry-After"] == "1" for each in rejected)
        assert (await registry.post("large-0", [], {**kv, "again": "1"})).status == 200
