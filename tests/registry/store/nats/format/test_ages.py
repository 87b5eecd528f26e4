"""Ages outlive registries, in a bounded number of keys, however long they run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from registry.nodes.directory import KnownNode
from registry.nodes.writes import Writes
from registry.store.clock import AgeClock
from registry.store.nats.ages import MAX_ENTRIES, in_batches
from registry.store.nats.bucket import BucketState, JetStreamApi, find_bucket
from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from registry.store.protocol import HeardBefore, NodeStore, Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import clocks_of, context_of
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Followed, touch
from tests.support.registry.stores.sqlite_store import Batches, ignore, row
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
LONG_SECONDS = 100.0
MAX_MESSAGES = 20
THOUSAND = 1000


class Aged(Followed):
    """Nodes in memory, with their ages."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._heard: dict[str, float] = {}

    def note(self, hostname: str) -> None:
        """Hear of a node, which is added if it is new."""
        self.nodes.setdefault(hostname, row(hostname))
        self._heard[hostname] = self._clock()

    def stored(self, row: Row) -> None:
        self.note(row.hostname)

    def ages(self, after: str) -> list[HeardBefore]:
        return [
            one._replace(age=self._clock() - self._heard[one.hostname])
            for one in super().ages(after)
        ]


@asynccontextmanager
async def opened(
    servers: NatsCluster, bucket: str, clock: ManualClock
) -> AsyncIterator[tuple[NodeStore, Aged, dict[str, float]]]:
    """Open a store; yield it with the nodes in memory, and the ages that it read."""
    backend = backend_at(servers.url(bucket), servers.options())
    store = backend.open(clock=AgeClock(clock), observe=Batches().observe)
    memory = Aged(clock)
    try:
        rows = (await store.load()).rows
        store.follow(memory)
        yield store, memory, {one.hostname: round(one.age) for one in rows}
    finally:
        await store.close()


async def ages_in(servers: NatsCluster, bucket: str) -> dict[str, float]:
    """Return the ages that a registry which starts now reads."""
    async with opened(servers, bucket, ManualClock()) as (_, _, ages):
        return ages


async def state_of(servers: NatsCluster, bucket: str) -> BucketState:
    """Return what a bucket is like now."""
    async with connected([f"nats://{servers.servers[0].address}"], NatsLogin()) as link:
        state = await find_bucket(JetStreamApi(link), bucket)
        assert state is not None
        return state


async def subjects(servers: NatsCluster, bucket: str) -> int:
    """Return how many keys a bucket has."""
    return (await state_of(servers, bucket)).subjects


async def test_ages_are_known_after_all_of_them_were_written_again_and_again(
    server: NatsCluster,
) -> None:
    clock = ManualClock()
    async with opened(server, "again", clock) as (store, memory, _):
        for name in ("silent", "alive"):
            memory.note(name)
            await store.put(row(name), ignore)
        for number in range(1, 5):
            clock.now += LONG_SECONDS
            memory.note("alive")
            await touch(store, "alive", last_update=number)
            began = await subjects(server, "again")
            await asyncio.sleep(1)  # some reports, and all ages
            expected = {"silent": number * LONG_SECONDS, "alive": 0}
            assert await ages_in(server, "again") == expected
            assert began < 40


async def test_a_long_silence_is_known_after_a_kill_of_all(server: NatsCluster) -> None:
    clock = ManualClock()
    async with opened(server, "killed", clock) as (store, memory, _):
        memory.note("silent")
        await store.put(row("silent"), ignore)
        clock.now += 20 * LONG_SECONDS

        async def is_known() -> bool:
            return await ages_in(server, "killed") == {"silent": 20 * LONG_SECONDS}

        await async_until(is_known)


@pytest.mark.slow
async def test_what_is_heard_takes_a_bounded_number_of_keys(server: NatsCluster) -> None:
    clock = ManualClock()
    async with opened(server, "bounded", clock) as (store, memory, _):
        memory.note("a")
        await store.put(row("a"), ignore)
        for number in range(40):
            await asyncio.gather(
                *[touch(store, "a", last_update=100 * number + n) for n in range(100)]
            )
            await asyncio.sleep(0.05)
        assert await subjects(server, "bounded") < 2000
        clock.now += LONG_SECONDS

        async def is_known() -> bool:
            return await ages_in(server, "bounded") == {"a": LONG_SECONDS}

        await async_until(is_known)


async def test_heartbeats_of_a_thousand_nodes_are_one_message(server: NatsCluster) -> None:
    clock = ManualClock()
    hosts = [f"host-{number}.example.com" for number in range(THOUSAND)]
    async with opened(server, "batch", clock) as (store, memory, _):
        for name in hosts:
            memory.note(name)
        await asyncio.gather(*[store.put(row(name), ignore) for name in hosts])
        writes = Writes(context_of(store, clocks_of(clock)))
        writes.unavailable_error = None
        for name in hosts:
            writes.touch(KnownNode(row(name), heard=0.0))
        before = (await state_of(server, "batch")).last

        await writes.flush()

        after = (await state_of(server, "batch")).last
        # The others are those by which a registry shows about every half second that it runs.
        assert 0 < after - before < MAX_MESSAGES


def test_no_message_has_so_many_nodes_that_it_holds_up_who_receives_it() -> None:
    heard = [(f"h{number}", number, "192.0.2.1") for number in range(2 * MAX_ENTRIES + 1)]

    batches = [*in_batches(heard, max_bytes=1024 * 1024)]

    assert [len(batch) for batch in batches] == [MAX_ENTRIES, MAX_ENTRIES, 1]
    assert [entry for batch in batches for entry in batch] == heard
