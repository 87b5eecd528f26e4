"""How old what a store shows is, if the machine was suspended."""

import time
from functools import partial

import pytest

from registry.store.clock import AgeClock
from registry.store.nats.bucket import BucketAddress
from registry.store.nats.store import NatsStore
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Followed
from tests.support.registry.stores.sqlite_store import Batches
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
HOUR = 3600.0


async def is_current(store: NatsStore) -> bool:
    return store.health.age == 0 and not store.health.problem


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
