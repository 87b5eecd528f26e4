"""Buckets: their URLs, the answers of JetStream, and settings that would lose nodes."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from registry.errors import StoreOpenError
from registry.store.backend import backend_of
from registry.store.nats.bucket import Rejected, ask_jetstream
from registry.store.nats.link import NoConnection, connected
from registry.store.options import NatsLogin, NatsOptions
from tests.support.registry.nats.buckets import open_bucket
from tests.support.registry.nats.servers import NatsCluster


async def make(servers: NatsCluster, bucket: str, settings: Mapping[str, Any]) -> None:
    """Make a bucket as a registry does, but with some other settings."""
    config = {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }
    async with connected([f"nats://{servers.servers[0].address}"], NatsLogin()) as link:
        await ask_jetstream(link, f"STREAM.CREATE.KV_{bucket}", {**config, **settings})


@pytest.mark.real
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_msgs_per_subject": 2}, "made with max_msgs_per_subject 2, it needs 1"),
        ({"allow_msg_ttl": False}, "made with allow_msg_ttl False, it needs True"),
        ({"allow_rollup_hdrs": True}, "made with allow_rollup_hdrs True, it needs False"),
        ({"retention": "interest"}, "made with retention 'interest', it needs 'limits'"),
        ({"storage": "memory"}, "made with storage 'memory', it needs 'file'"),
        ({"persist_mode": "async"}, "made with persist_mode 'async'"),
        ({"max_age": 3_600_000_000_000}, "has a limit of age, number or size"),
        ({"max_msgs": 1000}, "has a limit of age, number or size"),
        ({"max_bytes": 1_000_000}, "has a limit of age, number or size"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_bucket_that_would_lose_nodes_is_rejected(
    settings: Mapping[str, Any], reason: str, server: NatsCluster
) -> None:
    bucket = f"rejected-{next(iter(settings))}"
    await make(server, bucket, settings)

    with pytest.raises(StoreOpenError, match=re.escape(reason)):
        async with open_bucket(server.url(bucket), server.options()):
            pass


@pytest.mark.real
@pytest.mark.parametrize(
    ("code", "error"),
    [(10008, NoConnection), (10009, NoConnection), (10076, NoConnection), (10059, Rejected)],
)
async def test_what_passes_is_no_rejection(
    code: int, error: type[Exception], server: NatsCluster
) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(
            msgspec.json.encode({"error": {"err_code": code, "description": "not now"}})
        )

    async with connected([f"nats://{server.servers[0].address}"], NatsLogin()) as link:
        await link.client.subscribe("$JS.API.TEST", cb=answer)

        with pytest.raises(error, match="not now"):
            await ask_jetstream(link, "TEST")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://n1/rollcall", "nats://n1:4222/rollcall"),
        ("nats://n1:5000,n2/b", "nats://n1:5000,n2:4222/b"),
        ("nats://[::1]:4222,127.0.0.1/b_-1", "nats://[::1]:4222,127.0.0.1:4222/b_-1"),
    ],
)
def test_a_url_names_servers_and_a_bucket(url: str, shown: str) -> None:
    assert str(backend_of(url, NatsOptions())) == shown


@pytest.mark.parametrize(
    "url",
    [
        "nats://n1",
        "nats://n1/",
        "nats:///b",
        "nats://n1,/b",
        "nats://n1/a.b",
        "nats://n1/a/b",
        "nats://user:password@n1/b",
        "nats://n1:port/b",
    ],
)
def test_what_names_no_bucket_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="nats://HOST:PORT,HOST:PORT/BUCKET"):
        backend_of(url, NatsOptions())
