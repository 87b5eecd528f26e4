"""The connections of a copy to a bucket, one after the other."""

import asyncio
import re

import pytest

from registry.errors import StoreOpenError
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.connection.link import NoConnection
from registry.store.jetstream.copying.bucket import Bucket, BucketMessage, OpenBucket
from tests.support.registry.nats.buckets import edit_bucket
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real


@pytest.mark.parametrize("writes", [True, False])
async def test_patience_begins_anew_with_each_connection_over_which_something_was_written(
    *, writes: bool, server: NatsCluster, request: pytest.FixtureRequest
) -> None:
    name = re.sub(r"\W", "_", request.node.name)[-60:]
    place = BucketAddress.from_url(server.url(name), server.options())
    assert place is not None
    attempts: list[None] = []

    async def work(bucket: OpenBucket) -> None:
        attempts.append(None)
        if writes:
            await bucket.write([BucketMessage(f"other.{len(attempts)}", b"")])
        if len(attempts) < 3:
            await asyncio.sleep(0.6)
            raise NoConnection("a fault")

    bucket = Bucket(place, make=True)
    try:
        if writes:
            await bucket.perform(work, patience=0.5)
        else:
            with pytest.raises(StoreOpenError, match="a fault"):
                await bucket.perform(work, patience=0.5)
    finally:
        await bucket.close()
    assert len(attempts) == (3 if writes else 1)


async def test_what_the_servers_refuse_for_good_is_told_at_once_in_their_words(
    server: NatsCluster,
) -> None:
    place = BucketAddress.from_url(server.url("small"), server.options())
    assert place is not None
    attempts: list[None] = []

    async def work(bucket: OpenBucket) -> None:
        attempts.append(None)
        await edit_bucket(server, "small", max_msg_size=500)
        await bucket.write([BucketMessage("node.a", b"x" * 600)])

    bucket = Bucket(place, make=True)
    try:
        with pytest.raises(StoreOpenError, match=r"refuse node\.a: message size exceeds"):
            await bucket.perform(work)
    finally:
        await bucket.close()
    assert len(attempts) == 1


async def test_what_another_has_changed_meanwhile_is_tried_again(server: NatsCluster) -> None:
    place = BucketAddress.from_url(server.url("changed"), server.options())
    assert place is not None
    attempts: list[None] = []

    async def work(bucket: OpenBucket) -> None:
        attempts.append(None)
        if len(attempts) == 1:
            bucket.contents.sequences["other.a"] = 7
        await bucket.write([BucketMessage("other.a", b"")])

    bucket = Bucket(place, make=True)
    try:
        await bucket.perform(work)
    finally:
        await bucket.close()
    assert len(attempts) == 2
