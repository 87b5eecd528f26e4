"""Registries of two versions on one bucket: what a later one may write, and what is refused."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from registry.errors import StoreOpenError, StoreUnavailable
from registry.store.nats.format import EXPECTED
from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from registry.store.protocol import NodeStore
from tests.support.registry.nats.buckets import backend_at, open_bucket
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import shared
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
LATER = b'{"by":"later-1","uptime":1.0,"format":2,"of":{"later":["versions"]}}'
VERSIONS = Path(__file__).with_name("versions")
STORED = {
    "by": "later-1",
    "uptime": 1.0,
    "last_update": 1_700_000_000,
    "address": "192.0.2.1",
    "node": {"labels": ["a"], "kv": {}},
}


@pytest.fixture
def url(server: NatsCluster, request: pytest.FixtureRequest) -> str:
    """Return the URL of a bucket of the test's own."""
    return server.url(re.sub(r"\W", "_", request.node.name)[:60])


async def write(url: str, values: Mapping[str, bytes]) -> None:
    """Write values to a bucket, as another version may."""
    server, _, bucket = url.rpartition("/")
    async with connected([server], NatsLogin()) as link:
        for key, value in values.items():
            await link.client.request(f"$KV.{bucket}.{key}", value, timeout=5)


class Kept(NamedTuple):
    """A message that a version left in a bucket."""

    key: str
    headers: dict[str, str]
    data: str


def messages_of(file: Path) -> list[Kept]:
    """Return the messages of a file."""
    return [Kept(**json.loads(line)) for line in file.read_bytes().splitlines()]


async def write_messages(url: str, messages: list[Kept]) -> None:
    """Write messages to a bucket; what they replaced is not looked at."""
    server, _, bucket = url.rpartition("/")
    async with connected([server], NatsLogin()) as link:
        for key, headers, data in messages:
            headers.pop(EXPECTED, None)
            await link.client.request(
                f"$KV.{bucket}.{key}", data.encode(), timeout=5, headers=headers or None
            )


@pytest.mark.parametrize("file", sorted(VERSIONS.glob("*.jsonl")), ids=lambda file: file.stem)
async def test_what_each_version_wrote_is_read(file: Path, server: NatsCluster) -> None:
    """Each file has the messages of a bucket, as that version left it after some changes.

    When what is written changes, another file is added; none is made anew.
    """
    url = server.url(file.stem)
    async with open_bucket(url, server.options()):
        pass  # now there is a bucket
    await write_messages(url, messages_of(file))

    async with open_bucket(url, server.options()) as (store, [first, second]):
        assert first.hostname == "web-1.example.com"
        assert json.loads(first.document) == {
            "labels": ["service:web", "prometheus:web", "site:b"],
            "kv": {"agent.id": "a1"},
        }
        assert (first.last_update, first.address) == (1_700_000_100, "192.0.2.1")
        assert json.loads(second.document)["kv"] == {"text": '\u2028 \\ "'}
        assert second.age - first.age == pytest.approx(5, abs=2)
        assert not shared(store).health.continues  # the bucket is another one
        await store.put(row("web-2.example.com"), ignore)
    assert await asyncio.to_thread(backend_at(url, server.options()).check) == 2


async def out_of_reach(store: NodeStore) -> bool:
    return shared(store).health.age > 0


async def in_reach(store: NodeStore) -> bool:
    return shared(store).health.age == 0


async def made(server: NatsCluster, url: str) -> None:
    """Make a bucket with a node."""
    async with open_bucket(url, server.options()) as (store, _):
        await store.put(row("b"), ignore)


async def test_fields_and_keys_of_a_later_version_are_ignored(
    server: NatsCluster, url: str
) -> None:
    await made(server, url)
    later = {**STORED, "colour": "red", "more": [{"of": 1}]}
    await write(
        url,
        {
            "node.a": json.dumps(later, separators=(",", ":")).encode(),
            "later.a": b"no JSON at all",
            "registry.later": b'{"by":"later-2","uptime":2.0,"colour":"red"}',
            "registry.format": b'{"by":"later-3","uptime":3.0,"format":1,"colour":"red"}',
        },
    )

    async with open_bucket(url, server.options()) as (store, rows):
        assert [one._replace(age=0.0) for one in rows] == [row("a"), row("b")]
        await store.put(row("a"), ignore)


@pytest.mark.parametrize("value", [LATER, b'{"format":"ii"}', b"no JSON at all"])
async def test_a_bucket_in_another_format_is_used_by_nothing(
    value: bytes, server: NatsCluster, tmp_path: Path
) -> None:
    url = server.url(f"another-{len(value)}")
    await made(server, url)
    backend = backend_at(url, server.options())
    await asyncio.to_thread(backend.backup, tmp_path / "before")
    await write(url, {"registry.format": value})

    with pytest.raises(
        StoreOpenError, match=r"is written in .*format.*, this release knows format 1"
    ):
        async with open_bucket(url, server.options()):
            pass
    commands: list[Callable[[], object]] = [
        backend.check,
        partial(backend.backup, tmp_path / "backup"),
        partial(backend.restore, tmp_path / "before"),
        partial(backend.delete, ["b"]),
        backend.snapshot,
        partial(backend.fill, [row("b")]),
    ]
    for command in commands:
        with pytest.raises(StoreOpenError, match="this release knows format 1"):
            await asyncio.to_thread(command)


async def test_a_registry_that_runs_writes_nothing_to_another_format(
    server: NatsCluster, url: str
) -> None:
    async with open_bucket(url, server.options()) as (store, _):
        await store.put(row("b"), ignore)
        await write(url, {"registry.format": LATER})

        await async_until(lambda: out_of_reach(store))
        assert "is written in format 2" in shared(store).health.problem
        with pytest.raises(StoreUnavailable):
            await store.put(row("c"), ignore)

        await write(url, {"registry.format": b'{"by":"later-4","uptime":4.0,"format":1}'})
        await async_until(lambda: in_reach(store))
        await store.put(row("d"), ignore)
    async with open_bucket(url, server.options()) as (_, rows):
        assert [one.hostname for one in rows] == ["b", "d"]
