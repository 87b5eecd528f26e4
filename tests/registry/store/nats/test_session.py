"""One connection's work, and how it ends."""

import asyncio
import time

import pytest

from registry.store.clock import AgeClock
from registry.store.nats.ages import Reports, Rings
from registry.store.nats.applier import Applier
from registry.store.nats.bucket import BucketAddress
from registry.store.nats.link import Link, connected
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations
from registry.store.nats.publisher import Publisher
from registry.store.nats.work import BucketWork, end
from registry.store.options import NatsLogin
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.nats.servers import NatsCluster


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
