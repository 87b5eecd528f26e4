"""How long a start waits."""

import asyncio

from registry.store.nats.work import NO_PROGRESS_SECONDS, is_ready
from tests.support.machine.clocks import in_virtual_time

MANY = 5


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
