"""A store whose servers do not answer, reject a change, or have a defect."""

import asyncio
import time
from functools import partial

import pytest

from registry.errors import StoreUnreachable
from registry.store.clock import AgeClock
from registry.store.nats.ages import Reports, Rings
from registry.store.nats.applier import Applier
from registry.store.nats.bucket import BucketAddress
from registry.store.nats.link import Link, connected
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations
from registry.store.nats.publisher import WRITE_SECONDS, Publisher
from registry.store.nats.store import REJECT_AFTER_SECONDS, NatsStore
from registry.store.nats.work import NO_PROGRESS_SECONDS, BucketWork, end, is_ready
from registry.store.options import NatsLogin, NatsOptions
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.nats.buckets import edit_bucket, open_bucket
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Followed, Outcomes, node
from tests.support.registry.stores.sqlite_store import Batches
from tests.support.waiting import async_until

MANY = 5
HOUR = 3600.0


def unconnected_store() -> NatsStore:
    """Return a store of which nothing was read yet."""
    place = BucketAddress.from_url("nats://127.0.0.1:1/rollcall", NatsOptions())
    assert place is not None
    return NatsStore(
        place=place,
        clock=AgeClock(time.monotonic),
        observe=Batches().observe,
        now=asyncio.get_running_loop().time,
    )


@in_virtual_time
async def test_to_catch_up_has_a_time_limit() -> None:
    store, loop = unconnected_store(), asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(StoreUnreachable, match=r"may be missing: the NATS servers have no quorum"):
        await store.catch_up()

    assert loop.time() - began == WRITE_SECONDS


@in_virtual_time
async def test_to_catch_up_is_rejected_at_once_if_nothing_was_confirmed_for_long() -> None:
    store, loop = unconnected_store(), asyncio.get_running_loop()
    await asyncio.sleep(REJECT_AFTER_SECONDS + 1)
    began = loop.time()

    with pytest.raises(StoreUnreachable, match="confirmed nothing for 7 s"):
        await store.catch_up()

    assert loop.time() == began


async def ignore_cancellations(count: int) -> None:
    """Go on after so many of them."""
    for _ in range(count):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


@in_virtual_time
async def test_a_task_that_ignores_a_cancellation_ends_all_the_same() -> None:
    tasks = [asyncio.create_task(ignore_cancellations(count)) for count in range(3)]
    await asyncio.sleep(0)

    await end(tasks)

    assert all(task.cancelled() for task in tasks)


@in_virtual_time
async def test_a_task_that_has_failed_before_its_end_is_no_error() -> None:
    async def fail() -> None:
        raise OSError("the server is gone")

    tasks = [asyncio.create_task(fail())]
    await asyncio.sleep(0)

    await end(tasks)
    await end([])


class Defective(Publisher):
    """Has a defect."""

    async def send_over(self, _link: Link) -> None:
        raise ZeroDivisionError


@pytest.mark.real
async def test_a_defect_is_not_taken_for_a_loss_of_the_connection(server: NatsCluster) -> None:
    place = BucketAddress.from_url(server.url("defect"), server.options())
    assert place is not None
    clock = AgeClock(time.monotonic)
    operations = NodeOperations(Defective(place.bucket, Uptime(clock)))
    rings = Rings(operations.publisher.run)
    applier, reports = Applier(operations, rings), Reports(operations.publisher, rings)
    async with connected(place.servers, NatsLogin()) as link:
        with pytest.raises(ZeroDivisionError):
            await BucketWork(place, clock, applier, reports).work_over(link)


@in_virtual_time
async def test_a_start_goes_on_as_long_as_more_of_the_bucket_is_read() -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    began = loop.time()
    loop.call_later(MANY * NO_PROGRESS_SECONDS - 1, ready.set_result, None)

    assert await is_ready(ready, lambda: round(loop.time() - began))


@in_virtual_time
async def test_a_start_ends_if_all_is_read_and_nothing_can_be_written() -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    began = loop.time()

    def progress() -> object:
        seconds = round(loop.time() - began)
        return seconds > NO_PROGRESS_SECONDS * MANY or seconds

    assert not await is_ready(ready, progress)


async def is_current(store: NatsStore) -> bool:
    return store.health.age == 0 and not store.health.problem


@pytest.mark.real
async def test_after_a_suspension_a_store_is_old_until_a_message_has_come_that_was_sent_since(
    server: NatsCluster,
) -> None:
    suspended = [0.0]
    place = BucketAddress.from_url(server.url("suspended"), server.options())
    assert place is not None
    store = NatsStore(
        place=place,
        clock=AgeClock(time.monotonic),
        observe=Batches().observe,
        now=lambda: time.monotonic() + suspended[0],
    )
    try:
        await store.load()
        store.follow(Followed())
        await async_until(partial(is_current, store))

        suspended[0] = HOUR
        assert store.health.age >= HOUR
        assert "quorum" in store.health.problem
        await async_until(partial(is_current, store))
    finally:
        await store.close()


@pytest.mark.real
async def test_a_change_that_the_servers_reject_leaves_memory_readable(server: NatsCluster) -> None:
    async with open_bucket(server.url(), server.options()) as (store, _):
        await edit_bucket(server, "rollcall", max_msg_size=500)

        with pytest.raises(StoreUnreachable, match="reject the change: message size exceeds"):
            await store.put(node("a", b'{"labels":["%b"],"kv":{}}' % (b"x" * 500)), Outcomes())

        await store.put(node("b"), Outcomes())
