"""What a bucket has lost without a word is noticed."""

import pytest

from registry.store.nats.bucket import BucketAddress, JetStreamApi, find_bucket, open_bucket
from registry.store.nats.link import Link, connected
from registry.store.nats.losses import Verification
from registry.store.options import NatsLogin
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real


async def look(verification: Verification, link: Link, bucket: str) -> None:
    state = await find_bucket(JetStreamApi(link), bucket)
    assert state is not None
    await verification.look(state)


async def test_what_was_delivered_since_the_look_before_is_not_taken_as_lost(
    server: NatsCluster,
) -> None:
    place = BucketAddress.from_url(server.url("lagging"), server.options())
    assert place is not None
    async with connected(place.servers, NatsLogin()) as link:
        await open_bucket(JetStreamApi(link), place)
        await link.client.request("$KV.lagging.node.a", b"{}")
        parts = Parts("lagging")
        verification = Verification(link, "lagging", parts.applier)
        for sequence, name in enumerate(("a", "b"), 1):  # the server does not have b yet
            parts.revisions.record(name, sequence, stored=True)
        parts.revisions.position = 2

        await look(verification, link, "lagging")
        assert parts.revisions.is_stored("b")

        await look(verification, link, "lagging")
        assert parts.revisions.is_stored("a")
        assert not parts.revisions.is_stored("b")


async def test_a_purge_is_noticed_however_many_other_keys_there_are(server: NatsCluster) -> None:
    place = BucketAddress.from_url(server.url("purged"), server.options())
    assert place is not None
    async with connected(place.servers, NatsLogin()) as link:
        api = JetStreamApi(link)
        await open_bucket(api, place)
        await link.client.request("$KV.purged.node.a", b"{}")
        parts = Parts("purged")
        parts.revisions.record("a", 1, stored=True)
        parts.revisions.position = 1
        verification = Verification(link, "purged", parts.applier)
        await look(verification, link, "purged")
        assert parts.revisions.is_stored("a")

        await api.ask("STREAM.PURGE.KV_purged")
        for number in range(5):
            await link.client.request(f"$KV.purged.heard.other.0.{number}", b"{}")
        await look(verification, link, "purged")

        assert not parts.revisions.is_stored("a")
