"""What the servers refuse to store."""

import msgspec
import pytest
from nats.aio.client import Client

from registry.errors import StoreUnreachable
from registry.store.conformance import Outcomes, node
from tests.support.registry.nats.buckets import open_bucket
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real


async def limit_messages(server: NatsCluster, size: int) -> None:
    """Let a bucket take no larger messages, as an operator does by hand."""
    client = Client()
    await client.connect(f"nats://{server.servers[0].address}")
    info = msgspec.json.decode((await client.request("$JS.API.STREAM.INFO.KV_rollcall")).data)
    config = msgspec.json.encode(info["config"] | {"max_msg_size": size})
    answer = await client.request("$JS.API.STREAM.UPDATE.KV_rollcall", config)
    await client.close()
    assert b'"error"' not in answer.data


async def test_a_change_that_the_servers_refuse_leaves_memory_readable(server: NatsCluster) -> None:
    async with open_bucket(server.url(), server.options()) as (store, _):
        await limit_messages(server, 500)

        with pytest.raises(StoreUnreachable, match="refuse the change: message size exceeds"):
            await store.put(node("a", b'{"labels":["%b"],"kv":{}}' % (b"x" * 500)), Outcomes())

        await store.put(node("b"), Outcomes())
