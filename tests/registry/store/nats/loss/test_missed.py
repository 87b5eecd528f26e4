"""Changes that were never delivered are found when a registry is connected again."""

from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from registry.store.nats.bucket import BucketState
from registry.store.nats.link import Link, NoConnection
from registry.store.nats.losses import Verification
from tests.support.registry.nats.buckets import Parts

NEVER_DELIVERED = 3
LAST = 5
STATE = BucketState(
    created="",
    first=1,
    last=LAST,
    subjects=1,
    consumers=1,
    servers=("n1",),
    replicas=1,
    cluster="",
)


class Subscribed(Subscription):
    """A subscription without a connection."""

    async def unsubscribe(self, limit: int = 0) -> None:
        """End it."""


class Holding(Client):
    """A connection to a server whose bucket holds one node; it counts the comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.comparisons = 0
        self._take: Any = None

    async def subscribe(self, *_: object, cb: Any = None, **__: object) -> Subscription:
        """Take what is delivered."""
        self._take = cb
        return Subscribed(self)

    async def request(self, subject: str, *_: object, **__: object) -> Msg:
        """Make a consumer, which delivers at once, or remove it."""
        if ".CONSUMER.CREATE." in subject:
            self.comparisons += 1
            reply = f"$JS.ACK.KV_b.c.1.{NEVER_DELIVERED}.1.0.0"
            await self._take(Msg(self, subject="$KV.b.node.a", reply=reply))
        return Msg(self, data=msgspec.json.encode({"num_pending": 1}))


def verification_of(parts: Parts, client: Client) -> Verification:
    link = Link()
    link.client = client
    return Verification(link, "b", parts.applier)


async def test_the_first_look_of_a_connection_finds_what_was_missed_before_it() -> None:
    parts = Parts("b")
    parts.revisions.record("a", 1, stored=True)
    parts.revisions.position = LAST
    verification = verification_of(parts, Holding())

    with pytest.raises(NoConnection, match="changes that it has not delivered: a"):
        await verification.look(STATE)

    assert parts.applier.missed == {"a"}


async def test_a_connection_that_goes_on_compares_once() -> None:
    parts, client = Parts("b"), Holding()
    parts.revisions.record("a", NEVER_DELIVERED, stored=True)
    parts.revisions.position = LAST
    verification = verification_of(parts, client)

    await verification.look(STATE)
    await verification.look(STATE)

    assert client.comparisons == 1
    assert not parts.applier.missed
