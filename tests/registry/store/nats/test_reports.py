"""All ages are written under new keys: those of before count until the new ones are there."""

import asyncio

from registry.errors import StoreUnreachable
from registry.store.clock import AgeClock
from registry.store.commits import Finishing
from registry.store.nats.ages import CHUNK_NODES, Reports, Rings
from registry.store.nats.delivery import Message
from registry.store.nats.format import COMPLETE, LoadedNodes, is_deletion
from registry.store.nats.members import Uptime
from registry.store.nats.publisher import Publisher, Write
from registry.store.protocol import HeardBefore
from tests.support.machine.clocks import ManualClock
from tests.support.registry.stores.conformance import Followed, node

HOSTS = [f"h{number:04}" for number in range(CHUNK_NODES + 1)]
AGE = 7.0
START, LATER = ManualClock().now, ManualClock().now + 100


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
            write.outcome.failed(StoreUnreachable("the registry is killed"))
            return
        last = bucket.messages.get(write.key)
        actual = 0 if last is None else last.sequence
        if write.expected not in {None, actual}:
            write.outcome.conflicted(write, actual)
            return
        bucket.sequence += 1
        message = Message(bucket.sequence, write.key, write.value, write.headers, 0)
        bucket.messages[write.key] = message
        write.outcome.delivered(bucket.sequence)


class Nodes(Followed):
    """Nodes in memory, last heard of some seconds ago."""

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
    reports.tick(nodes)
    await reports.idle()
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
    killed.left = 3  # what was heard, a mark, the ages of some, and nothing of the others
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
