"""What the servers refuse to store."""

import pytest

from registry.errors import StoreUnreachable
from tests.support.registry.nats.buckets import edit_bucket, open_bucket
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Outcomes, node

pytestmark = pytest.mark.real


async def test_a_change_that_the_servers_refuse_leaves_memory_readable(server: NatsCluster) -> None:
    async with open_bucket(server.url(), server.options()) as (store, _):
        await edit_bucket(server, "rollcall", max_msg_size=500)

        with pytest.raises(StoreUnreachable, match="refuse the change: message size exceeds"):
            await store.put(node("a", b'{"labels":["%b"],"kv":{}}' % (b"x" * 500)), Outcomes())

        await store.put(node("b"), Outcomes())
