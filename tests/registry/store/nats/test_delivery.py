"""Messages of a bucket, and what keeps them away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from registry.store.nats.delivery import Delivery, Message
from registry.store.nats.link import Link, NoConnection

# So many of the event loop are enough to wake who waits for an event, and take microseconds.
ITERATIONS = 10


class Consumer(Client):
    """A connection whose server says what the test says; messages are pending at first."""

    def __init__(self) -> None:
        super().__init__()
        self.take: Callable[[Msg], Awaitable[None]] | None = None

    async def subscribe(self, *_: object, cb: Any = None, **__: object) -> Subscription:
        self.take = cb
        return Subscription(self)

    async def request(self, *_: object, **__: object) -> Msg:
        return Msg(self, data=msgspec.json.encode({"num_pending": 3}))

    async def deliver(self, number: int, pending: int) -> None:
        """Deliver a message."""
        assert self.take is not None
        reply = f"$JS.ACK.KV_b.c.1.{number}.{number}.0.{pending}"
        await self.take(Msg(self, subject="$KV.b.node.a", reply=reply, data=b"{}"))

    async def say_idle(self, **headers: str) -> None:
        """Send a heartbeat."""
        assert self.take is not None
        reported = {"Status": "100", "Description": "Idle Heartbeat"} | headers
        await self.take(Msg(self, subject="inbox", headers=reported))


async def begin(client: Client, on_message: Callable[[Message], None]) -> Delivery:
    link = Link()
    link.client = client
    delivery = Delivery(link, "b", on_message)
    await delivery.begin(1)
    return delivery


async def test_whoever_waits_for_the_last_message_learns_that_the_connection_is_lost() -> None:
    link = Link()
    delivery = Delivery(link, "b", lambda _message: None)
    await link.note_error(OSError("the server is gone"))
    await link.note_closed()

    with pytest.raises(NoConnection, match="the server is gone"):
        await delivery.until_caught_up()


async def test_whoever_waits_for_the_last_message_goes_on_when_it_comes() -> None:
    client = Consumer()
    delivery = await begin(client, lambda _message: None)
    waiting = asyncio.create_task(delivery.until_caught_up())
    await asyncio.sleep(0)

    await client.deliver(1, pending=0)
    for _ in range(ITERATIONS):
        await asyncio.sleep(0)

    assert waiting.done()


async def test_whoever_waits_for_messages_that_were_purged_is_reported_by_the_next_heartbeat() -> (
    None
):
    client = Consumer()
    delivery = await begin(client, lambda _message: None)
    await client.deliver(1, pending=2)
    await client.say_idle(**{"Nats-Last-Consumer": "1", "Nats-Consumer-Stalled": "$JS.FC.KV_b.c.x"})
    assert not delivery.caught_up.is_set()  # the server waits for this registry

    await client.say_idle(**{"Nats-Last-Consumer": "1"})

    await delivery.until_caught_up()


async def test_whoever_waits_for_a_message_that_has_expired_is_reported_by_the_next_heartbeat() -> (
    None
):
    client = Consumer()
    delivery = await begin(client, lambda _message: None)
    await client.deliver(1, pending=0)
    waiting = asyncio.create_task(delivery.until_passed(3))
    await client.say_idle(**{"Nats-Last-Consumer": "1", "Nats-Last-Stream": "2"})
    await asyncio.sleep(0)
    assert not waiting.done()

    await client.say_idle(**{"Nats-Last-Consumer": "1", "Nats-Last-Stream": "3"})

    await waiting


async def test_a_defect_at_one_message_is_reported_and_keeps_no_other_away() -> None:
    defects: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: defects.append(what))
    client = Consumer()
    taken: list[int] = []

    def take(message: Message) -> None:
        taken.append(message.sequence)
        if message.sequence == 1:
            raise ZeroDivisionError

    delivery = await begin(client, take)
    for number in (1, 2):
        await client.deliver(number, pending=2 - number)

    assert taken == [1, 2]
    assert delivery.caught_up.is_set()
    assert [type(one["exception"]) for one in defects] == [ZeroDivisionError]
