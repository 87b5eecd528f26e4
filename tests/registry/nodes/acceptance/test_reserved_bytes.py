"""Large heartbeats reserve a bounded number of bytes, and give back all of them."""

import asyncio

import pytest

from clients.message import MAX_BODY_BYTES
from registry.errors import StoreUnavailable
from registry.nodes.limits import MAX_LARGE_BYTES
from registry.store.protocol import DoneCallback, Guard, Row
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.large_nodes import SHAPES, SOURCE, USUAL, accept, body_of, forget
from tests.support.registry.stores.memory_store import MemoryStore


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


LARGE = body_of(*SHAPES["services"], 0)
MOMENTS = ["while it is prepared", "while the store writes"]


async def begin(registry: InProcessRegistry, moment: str) -> "asyncio.Task[bytes]":
    """Begin to accept a large heartbeat, and return at a moment of that."""
    task = asyncio.create_task(accept(registry.components.nodes, "large", LARGE))
    await asyncio.sleep(0)
    if moment == MOMENTS[1]:
        assert isinstance(registry.store, HeldStore)
        await registry.store.asked.wait()
    return task


@pytest.mark.slow
@pytest.mark.parametrize("known", [None, USUAL, LARGE.replace(b"prometheus:s0:", b"other:")])
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
            assert store.rows["large"].document == LARGE
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
async def test_a_large_heartbeat_that_the_store_refuses_leaves_nothing_reserved(
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

        refused = [each for each in answers if each.status == 503]
        assert 0 < len(refused) <= len(answers) - MAX_LARGE_BYTES // MAX_BODY_BYTES
        assert {each.status for each in answers} == {200, 503}
        assert all(each.headers["Retry-After"] == "1" for each in refused)
        assert (await registry.post("large-0", [], {**kv, "again": "1"})).status == 200
