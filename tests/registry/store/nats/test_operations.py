"""Operations on nodes end, whatever becomes of the bucket or is replaced by other registries."""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
from nats.aio.msg import Msg

from registry.errors import StoreUnavailable, TooManyConflicts
from registry.store.clock import AgeClock
from registry.store.nats.bucket import (
    BucketAddress,
    ask_jetstream,
    find_bucket,
    open_bucket,
    stream_of,
)
from registry.store.nats.delivery import Message
from registry.store.nats.format import EXPECTED, node_value
from registry.store.nats.link import Link, connected
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations, Operation, Revisions
from registry.store.nats.publisher import Publisher, Write
from registry.store.options import NatsLogin
from registry.store.protocol import Heard
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Outcomes, node
from tests.support.registry.stores.shared_conformance import numbered
from tests.support.waiting import async_until


def write_of(operation: Operation) -> Write:
    assert operation.write is not None
    return operation.write


class Conflicting(Publisher):
    """Rejects each write, since its key has another last sequence, until it is sent again."""

    def __init__(self, actual: int) -> None:
        super().__init__("b", Uptime(AgeClock(time.monotonic)))
        self._actual = actual
        self.resent: list[int] = []

    def submit(self, write: Write) -> None:
        write.outcome.conflicted(write, self._actual)

    def is_held(self, write: Write) -> bool:
        return write.expected is not None

    def resend(self, write: Write, expected: int) -> None:
        self.resent.append(expected)
        write.outcome.delivered(write, 1)


class AlwaysConflicting(Conflicting):
    """Rejects each write, however often it is sent."""

    def resend(self, write: Write, expected: int) -> None:
        self.resent.append(expected)
        write.outcome.conflicted(write, expected)


async def test_a_node_that_others_change_all_the_time_is_no_fault_of_the_store() -> None:
    operations = NodeOperations(AlwaysConflicting(actual=0))
    operation = Operation("a", node("a"), Outcomes(), None)
    operations.submit(operation)

    with pytest.raises(TooManyConflicts, match="send it again"):
        await operation.future


async def test_a_conflict_in_a_bucket_that_is_lost_is_sent_to_the_next_one() -> None:
    publisher = Conflicting(actual=5000)
    operations = NodeOperations(publisher)
    operation = Operation("a", node("a"), Outcomes(), None)
    operations.submit(operation)
    operations.reached(4999)
    assert not operation.future.done()

    operations.resend_conflicting()

    await operation.future
    assert publisher.resent == [0]
    assert "a" not in operations


async def test_what_waits_for_another_operation_is_rejected_if_its_guard_says_so_then() -> None:
    publisher = Publisher(
        "b", Uptime(AgeClock(time.monotonic)), now=asyncio.get_running_loop().time
    )
    operations = NodeOperations(publisher)
    rejection = KeyError("it belongs to another host")
    first = Operation("a", node("a"), Outcomes(), None)
    second = Operation("a", node("a"), Outcomes(), lambda: rejection)
    third = Operation("a", None, Outcomes(), lambda: None)
    for operation in (first, second, third):
        operations.submit(operation)
    assert second.write is None

    operations.delivered(write_of(first), 1)

    assert second.future.exception() is rejection
    assert second.write is None
    assert third.write is not None
    assert third.write.expected == 1


async def test_when_the_store_closes_what_waits_for_a_failed_operation_fails_too() -> None:
    publisher = Publisher(
        "b", Uptime(AgeClock(time.monotonic)), now=asyncio.get_running_loop().time
    )
    operations = NodeOperations(publisher)
    submitted = [Operation("a", node("a"), Outcomes(), None) for _ in range(3)]
    for operation in submitted:
        operations.submit(operation)

    publisher.fail_all(StoreUnavailable("the registry is stopping"))

    assert all(operation.future.done() for operation in submitted)
    for operation in submitted:
        with pytest.raises(StoreUnavailable, match="stopping"):
            await operation.future


class Waiting:
    """What was seen four hosts, once the operations on two of them are finished."""

    def __init__(self) -> None:
        self.parts = Parts("b")
        self.counted: list[str] = []
        self.rejected = Operation("rejected", node("rejected"), Outcomes(), None)
        self.stored = Operation("stored", node("stored"), Outcomes(), None)
        for operation in (self.rejected, self.stored):
            self.parts.operations.submit(operation)
        names = ("rejected", "stored", "changed", "same")
        self.parts.operations.after([(name, 7, "192.0.2.7") for name in names], self._act)

    def _act(self, heard: Sequence[Heard]) -> None:
        self.counted += [hostname for hostname, _, _ in heard]

    def change_elsewhere(self, sequence: int, hostname: str) -> None:
        """Deliver a node that another registry stored."""
        value = node_value(node(hostname), by="other-1", uptime=1.0)
        self.parts.applier.receive(Message(sequence, f"node.{hostname}", value, {}, 0))


async def test_what_was_heard_while_others_changed_the_host_does_not_count_for_their_node() -> None:
    waiting, rejection = Waiting(), KeyError("it belongs to another host")
    operations = waiting.parts.operations

    for sequence, hostname in enumerate(("rejected", "changed", "stored"), 1):
        waiting.change_elsewhere(sequence, hostname)
    operations.failed(write_of(waiting.rejected), rejection)
    assert waiting.rejected.future.exception() is rejection
    assert waiting.counted == []
    operations.delivered(write_of(waiting.stored), 4)  # over the change by the other one

    assert waiting.counted == ["stored", "same"]


async def test_what_was_heard_after_a_change_by_others_counts() -> None:
    waiting = Waiting()
    counted: list[Heard] = []
    waiting.change_elsewhere(1, "same")

    waiting.parts.operations.after([("same", 8, "192.0.2.7")], counted.extend)

    assert counted == [("same", 8, "192.0.2.7")]


def test_hosts_of_which_the_bucket_has_nothing_are_forgotten() -> None:
    revisions = Revisions()
    revisions.record("kept", 1, stored=True)
    revisions.record("lost", 2, stored=True)
    revisions.record("deleted long ago", 3, stored=False)
    revisions.record("deleted", 4, stored=False)
    revisions.record("new", 6, stored=True)

    revisions.keep({"kept", "deleted"}, position=5)

    names = ["kept", "lost", "deleted long ago", "deleted", "new"]
    assert [revisions.expected(name) for name in names] == [1, 0, 0, 4, 6]
    assert revisions.stored_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [20_000, 100_000])
def test_what_hosts_that_were_deleted_leave_in_memory_is_estimated(hosts: int) -> None:
    revisions = Revisions()
    tracemalloc.start()
    for number in range(hosts):
        hostname = f"web-{number:06}.example.com"
        revisions.record(hostname, 1000 + number, stored=True)
        revisions.record(hostname, 1000 + hosts + number, stored=False)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0.8 * revisions.memory_bytes < taken < 1.2 * revisions.memory_bytes

    revisions.clear()
    assert revisions.memory_bytes == 0


class Unheard:
    """A registry whose consumer delivers what the test says; `done` is reported in `memory`."""

    def __init__(self, place: BucketAddress, link: Link) -> None:
        self.bucket = place.bucket
        self.servers = place.servers
        self.link = link
        self._parts = Parts(place.bucket)
        self.memory = self._parts.memory
        self.publisher = self._parts.publisher

    def put(self, number: int) -> asyncio.Future[None]:
        """Begin to store a node."""

        def done(error: Exception | None) -> None:
            self.memory.received.append(("own", error is None))

        operation = Operation("a", node("a", numbered(number)), done, None)
        self._parts.operations.submit(operation)
        return operation.future

    def deliver(self, sequence: int, replaced: int) -> None:
        """Deliver a change by another registry, of which it replaced that sequence."""
        value = node_value(node("a", numbered(sequence)), by="other-1", uptime=0.0)
        self._parts.applier.receive(
            Message(sequence, "node.a", value, {EXPECTED: str(replaced)}, 0)
        )

    async def acknowledge(self, *, is_on: bool) -> None:
        """Let the servers acknowledge writes, or take them without a word."""
        stream = stream_of(self.bucket)
        config = (await ask_jetstream(self.link, f"STREAM.INFO.{stream}"))["config"]
        await ask_jetstream(self.link, f"STREAM.UPDATE.{stream}", config | {"no_ack": not is_on})

    async def has_stored(self, sequence: int = 1) -> bool:
        """Return whether the bucket has this sequence."""
        state = await find_bucket(self.link, self.bucket)
        return state is not None and state.last >= sequence

    async def change_elsewhere(self, replaced: int) -> int:
        """Change the node as another registry does; return the sequence."""
        async with connected(self.servers, NatsLogin()) as link:
            value = node_value(node("a", numbered(9)), by="other-1", uptime=0.0)
            reply = await link.client.request(
                f"$KV.{self.bucket}.node.a", value, headers={EXPECTED: str(replaced)}
            )
        return int(reply.data.rpartition(b":")[2].rstrip(b"}"))


@asynccontextmanager
async def unheard(server: NatsCluster, bucket: str) -> AsyncIterator[Unheard]:
    place = BucketAddress.from_url(server.url(bucket), server.options())
    assert place is not None
    async with connected(place.servers, NatsLogin()) as link:
        await open_bucket(link, place)
        yield Unheard(place, link)


@asynccontextmanager
async def sending(registry: Unheard) -> AsyncIterator[None]:
    task = asyncio.create_task(registry.publisher.send_over(registry.link))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def answers(registry: Unheard) -> AsyncIterator[Callable[[int], "asyncio.Future[None]"]]:
    """Yield what waits until the registry has so many answers to its writes."""
    seen: list[Msg] = []

    async def take(message: Msg) -> None:
        seen.append(message)

    async with connected(registry.servers, NatsLogin()) as link:
        await link.client.subscribe("_INBOX.>", cb=take)

        async def is_subscribed() -> bool:
            return bool(seen)

        # The library may flush before it has sent the subscription.
        await link.client.publish("_INBOX.subscribed", b"")
        await async_until(is_subscribed)
        seen.clear()

        async def wait(count: int) -> None:
            async def has() -> bool:
                registry.publisher.check()  # as a session does: what is not answered is sent again
                return len(seen) >= count

            await async_until(has)
            await registry.link.client.flush()
            await asyncio.sleep(0.05)

        yield lambda count: asyncio.ensure_future(wait(count))


@pytest.mark.real
async def test_a_change_that_was_acknowledged_and_replaced_is_done_before_the_one_behind_it(
    server: NatsCluster,
) -> None:
    async with (
        unheard(server, "done") as registry,
        answers(registry) as answered,
        sending(registry),
    ):
        future = registry.put(1)
        await answered(1)
        second = await registry.change_elsewhere(1)
        registry.deliver(second, 1)

        async def is_done() -> bool:
            return future.done()

        await async_until(is_done)
    assert registry.memory.received == [("own", True), ("stored", "a")]


@pytest.mark.real
async def test_a_change_whose_acknowledgement_is_lost_is_not_repeated_over_what_replaced_it(
    server: NatsCluster,
) -> None:
    async with unheard(server, "lost") as registry:
        await registry.acknowledge(is_on=False)
        async with sending(registry):
            future = registry.put(1)
            await async_until(registry.has_stored)
        await registry.acknowledge(is_on=True)
        second = await registry.change_elsewhere(1)
        async with sending(registry):  # again, as after a loss of the connection
            registry.deliver(second, 1)

            with pytest.raises(TooManyConflicts, match="unknown whether this change took effect"):
                await future
        assert await registry.change_elsewhere(second) == second + 1


@pytest.mark.real
async def test_a_change_that_was_sent_twice_is_repeated_over_one_that_came_before_it(
    server: NatsCluster,
) -> None:
    async with unheard(server, "before") as registry:
        first = await registry.change_elsewhere(0)
        await registry.acknowledge(is_on=False)
        async with sending(registry):
            future = registry.put(1)
            await registry.link.client.flush()
        await registry.acknowledge(is_on=True)
        async with sending(registry):
            registry.deliver(first, 0)
            await async_until(partial(registry.has_stored, first + 1))
        assert not future.done()
