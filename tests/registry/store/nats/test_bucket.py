"""Buckets that were made with other settings than a registry makes them."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from registry.errors import StoreOpenError
from registry.store.nats.bucket import JetStreamApi
from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from tests.support.registry.nats.buckets import open_bucket
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real


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
        await JetStreamApi(link).ask(f"STREAM.CREATE.KV_{bucket}", {**config, **settings})


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
async def test_a_bucket_that_would_lose_nodes_is_refused(
    settings: Mapping[str, Any], reason: str, server: NatsCluster
) -> None:
    bucket = f"refused-{next(iter(settings))}"
    await make(server, bucket, settings)

    with pytest.raises(StoreOpenError, match=re.escape(reason)):
        async with open_bucket(server.url(bucket), server.options()):
            pass
