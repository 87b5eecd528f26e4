"""Buckets that were made with other settings than a registry makes them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.errors import StoreOpenError
from registry.store.jetstream.connection.api import JetStreamApi
from registry.store.jetstream.connection.link import connected
from registry.store.options import NatsLogin
from tests.support.daemons import FreePort
from tests.support.registry.nats.buckets import open_bucket
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real
LEAST = NatsLogin(user="least", password="password-of-least")
ALL = NatsLogin(user="all", password="password-of-all")
USERS = f"""
authorization {{ users: [
  {{user: all, password: {ALL.password}}}
  {{user: least, password: {LEAST.password}, permissions: {{
    publish: {{deny: ["$JS.API.STREAM.UPDATE.>"]}}
  }}}}
] }}
"""


async def ask(
    servers: NatsCluster, login: NatsLogin, subject: str, request: object = None
) -> dict[str, Any]:
    """Return the answer of JetStream to a request."""
    async with connected([f"nats://{servers.servers[0].address}"], login) as link:
        return await JetStreamApi(link).ask(subject, request)


async def make(
    servers: NatsCluster, bucket: str, settings: Mapping[str, Any], login: NatsLogin
) -> None:
    """Make a bucket as a registry does, but with some other settings."""
    config = {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }
    await ask(servers, login, f"STREAM.CREATE.KV_{bucket}", {**config, **settings})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_msgs_per_subject": 2}, "made with max_msgs_per_subject 2, it needs 1"),
        ({"allow_msg_ttl": False}, "made with allow_msg_ttl False, it needs True"),
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
    await make(server, bucket, settings, NatsLogin())

    with pytest.raises(StoreOpenError, match=re.escape(reason)):
        async with open_bucket(server.url(bucket), server.options()):
            pass


async def test_a_bucket_that_takes_rollups_takes_none_once_a_registry_has_opened_it(
    server: NatsCluster,
) -> None:
    settings = {"allow_rollup_hdrs": True, "description": "mine"}
    await make(server, "rollups", settings, NatsLogin())
    before = (await ask(server, NatsLogin(), "STREAM.INFO.KV_rollups"))["config"]

    async with open_bucket(server.url("rollups"), server.options()):
        after = (await ask(server, NatsLogin(), "STREAM.INFO.KV_rollups"))["config"]

    assert after == {**before, "allow_rollup_hdrs": False}


async def test_it_is_refused_if_the_login_may_not_change_that(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path, free_port=free_port, settings=USERS) as servers:
        await make(servers, "rollcall", {"allow_rollup_hdrs": True}, ALL)
        options = replace(servers.options(), login=LEAST)

        with pytest.raises(StoreOpenError, match=r"allow_rollup_hdrs .* permissions violation"):
            async with open_bucket(servers.url(), options):
                pass
