"""What a store does whose servers do not answer."""

import asyncio
import time

import pytest

from registry.errors import StoreUnreachable
from registry.store.clock import AgeClock
from registry.store.nats.bucket import BucketAddress
from registry.store.nats.publisher import WRITE_SECONDS
from registry.store.nats.store import REFUSE_AFTER_SECONDS, NatsStore
from registry.store.options import NatsOptions
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.stores.sqlite_store import Batches


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
async def test_to_catch_up_is_refused_at_once_if_nothing_was_confirmed_for_long() -> None:
    store, loop = unconnected_store(), asyncio.get_running_loop()
    await asyncio.sleep(REFUSE_AFTER_SECONDS + 1)
    began = loop.time()

    with pytest.raises(StoreUnreachable, match="confirmed nothing for 7 s"):
        await store.catch_up()

    assert loop.time() == began
