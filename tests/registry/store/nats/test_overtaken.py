"""A change that takes effect and is replaced by another registry before anybody hears of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from nats.aio.msg import Msg

from registry.errors import TooManyConflicts
from registry.store.nats.bucket import (
    BucketAddress,
    JetStreamApi,
    find_bucket,
    open_bucket,
    stream_of,
)
from registry.store.nats.delivery import Message
from registry.store.nats.format import EXPECTED, node_value
from registry.store.nats.link import Link, connected
from registry.store.nats.operations import Operation
from registry.store.options import NatsLogin
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import node
from tests.support.registry.stores.shared_conformance import numbered
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


class Unheard:
    """A registry whose consumer delivers what the test says; `done` is told of in `memory`."""

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
        api, stream = JetStreamApi(self.link), stream_of(self.bucket)
        config = (await api.ask(f"STREAM.INFO.{stream}"))["config"]
        await api.ask(f"STREAM.UPDATE.{stream}", config | {"no_ack": not is_on})

    async def has_stored(self, sequence: int = 1) -> bool:
        """Return whether the bucket has this sequence."""
        state = await find_bucket(JetStreamApi(self.link), self.bucket)
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
        await open_bucket(JetStreamApi(link), place)
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
