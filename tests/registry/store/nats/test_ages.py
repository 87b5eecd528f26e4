"""When nodes were last seen is kept in messages that replace one another, and in common seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from registry.errors import StoreUnreachable
from registry.nodes.directory import KnownNode
from registry.nodes.writes import Writes
from registry.store.clock import AgeClock
from registry.store.commits import Finishing
from registry.store.nats.ages import CHUNK_NODES, MAX_ENTRIES, Reports, Rings, in_batches
from registry.store.nats.bucket import BucketState, find_bucket
from registry.store.nats.delivery import Message
from registry.store.nats.format import COMPLETE, LoadedNodes, is_deletion
from registry.store.nats.link import connected
from registry.store.nats.members import Uptime
from registry.store.nats.publisher import Publisher, Write
from registry.store.options import NatsLogin
from registry.store.protocol import HeardBefore, NodeStore, Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import clocks_of, context_of
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Followed, node, touch
from tests.support.registry.stores.sqlite_store import Batches, ignore, row
from tests.support.waiting import async_until

LONG_SECONDS = 100.0
MAX_MESSAGES = 20
THOUSAND = 1000
HOSTS = [f"h{number:04}" for number in range(CHUNK_NODES + 1)]
AGE = 7.0
START, LATER = ManualClock().now, ManualClock().now + 100
DAY = 86_400.0


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
        state = await find_bucket(link, bucket)
        assert state is not None
        return state


async def subjects(servers: NatsCluster, bucket: str) -> int:
    """Return how many keys a bucket has."""
    return (await state_of(servers, bucket)).subjects


@pytest.mark.real
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


@pytest.mark.real
async def test_a_long_silence_is_known_after_a_kill_of_all(server: NatsCluster) -> None:
    clock = ManualClock()
    async with opened(server, "killed", clock) as (store, memory, _):
        memory.note("silent")
        await store.put(row("silent"), ignore)
        clock.now += 20 * LONG_SECONDS

        async def is_known() -> bool:
            return await ages_in(server, "killed") == {"silent": 20 * LONG_SECONDS}

        await async_until(is_known)


@pytest.mark.real
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


@pytest.mark.real
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


@pytest.mark.real
def test_no_message_has_so_many_nodes_that_it_holds_up_who_receives_it() -> None:
    heard = [(f"h{number}", number, "192.0.2.1") for number in range(2 * MAX_ENTRIES + 1)]

    batches = [*in_batches(heard, max_bytes=1024 * 1024)]

    assert [len(batch) for batch in batches] == [MAX_ENTRIES, MAX_ENTRIES, 1]
    assert [entry for batch in batches for entry in batch] == heard


class Bucket:
    """The last message of each key."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.sequence = 0

    def ages(self, uptime: float) -> dict[str, float]:
        """Return the ages of the hosts, as a registry that starts now reads them."""
        loaded = LoadedNodes(lambda _hostname: 0)
        for hostname in HOSTS:
            loaded.stored(node(hostname), 0.0)
        for message in sorted(self.messages.values()):
            loaded.heard(message)
        loaded.uptime = uptime
        return {row.hostname: row.age for row in loaded.rows()}

    def keys_of_ages(self) -> list[str]:
        kept = [key for key, one in self.messages.items() if not is_deletion(one.headers)]
        return [key for key in kept if key.startswith("ages.")]


class Writing(Publisher):
    """Writes to a bucket in memory. It fails after `left` writes."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__("b", Uptime(AgeClock(ManualClock())))
        self._bucket = bucket
        self.rings = Rings(self.run)
        self.left = 10_000

    def submit(self, write: Write) -> None:
        asyncio.get_running_loop().call_soon(self._write, write)

    def _write(self, write: Write) -> None:
        bucket, self.left = self._bucket, self.left - 1
        if self.left < 0:
            write.outcome.failed(write, StoreUnreachable("the registry is killed"))
            return
        last = bucket.messages.get(write.key)
        actual = 0 if last is None else last.sequence
        if write.expected not in {None, actual}:
            write.outcome.conflicted(write, actual)
            return
        bucket.sequence += 1
        message = Message(bucket.sequence, write.key, write.value, write.headers, 0)
        bucket.messages[write.key] = message
        write.outcome.delivered(write, bucket.sequence)


class Nodes(Followed):
    """Nodes in memory, last seen some seconds ago."""

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self.nodes = {name: node(name)._replace(age=AGE) for name in sorted(hosts)}

    def ages(self, after: str) -> list[HeardBefore]:
        return super().ages(after)[:50]


async def write_ages(publisher: Writing, bucket: Bucket, nodes: Nodes) -> None:
    """Write all ages, as a registry that has read the bucket."""
    for message in sorted(bucket.messages.values()):
        if message.key.startswith("ages."):
            publisher.rings.delivered_ages(message)
    reports = Reports(publisher, publisher.rings)
    reports.tick(None)
    await reports.write_ages(nodes)
    for message in sorted(bucket.messages.values()):
        if message.key.startswith("ages."):
            publisher.rings.delivered_ages(message)


async def test_ages_that_are_cut_off_take_none_of_the_complete_ones_away() -> None:
    bucket = Bucket()
    await write_ages(Writing(bucket), bucket, Nodes(*HOSTS))
    assert COMPLETE in bucket.keys_of_ages()
    assert bucket.ages(START) == dict.fromkeys(HOSTS, AGE)

    killed = Writing(bucket)
    killed.uptime.begin(LATER)
    killed.left = 3  # what was seen, a mark, the ages of some, and nothing of the others
    await write_ages(killed, bucket, Nodes("a", *HOSTS))

    late = dict.fromkeys(HOSTS[-2:], AGE + LATER - START)
    assert bucket.ages(LATER) == dict.fromkeys(HOSTS, AGE) | late


async def test_of_two_that_write_all_ages_one_ends_with_the_complete_ones() -> None:
    bucket = Bucket()
    await write_ages(Writing(bucket), bucket, Nodes(*HOSTS))
    both = [Writing(bucket), Writing(bucket)]
    for writer in both:
        writer.uptime.begin(LATER)

    await asyncio.gather(
        write_ages(both[0], bucket, Nodes(*HOSTS)),
        write_ages(both[1], bucket, Nodes("a", *HOSTS)),
    )
    assert bucket.ages(LATER) == dict.fromkeys(HOSTS, AGE)

    both[0].uptime.begin(LATER + LATER)
    await write_ages(both[0], bucket, Nodes(*HOSTS))
    assert len(bucket.keys_of_ages()) == 4, bucket.keys_of_ages()
    assert bucket.ages(LATER + LATER) == dict.fromkeys(HOSTS, AGE)


async def test_reports_and_ages_fit_into_what_the_servers_take() -> None:
    bucket = Bucket()
    writer = Writing(bucket)
    writer.max_value = 2000
    reports = Reports(writer, writer.rings)
    finishing = Finishing(lambda _error: None)
    reports.write_heard([(name, 1_700_000_000, "192.0.2.111") for name in HOSTS], finishing)
    await finishing.future
    await write_ages(writer, bucket, Nodes(*HOSTS))

    assert max(len(message.data) for message in bucket.messages.values()) <= 2000
    assert bucket.ages(START) == dict.fromkeys(HOSTS, 0.0)


def test_a_count_that_is_far_ahead_makes_no_node_older() -> None:
    clock = AgeClock(ManualClock())
    uptime = Uptime(clock)
    uptime.begin(0.0)  # of a bucket that this registry has made
    heard = clock()

    uptime.saw(30 * DAY)  # of one that still has the nodes of the bucket before

    assert uptime() == 30 * DAY
    assert clock() == heard


def test_time_in_which_others_could_write_counts_once_they_are_heard() -> None:
    monotonic = ManualClock()
    clock = AgeClock(monotonic)
    uptime = Uptime(clock)
    uptime.begin(100.0)
    began = clock()
    clock.hold()
    monotonic.now += 50
    assert clock() == began

    uptime.saw(140.0)
    assert clock() == began + 40
    clock.resume()
    assert clock() == began + 40
    uptime.saw(200.0)

    assert (clock(), uptime()) == (began + 50, 200.0)
