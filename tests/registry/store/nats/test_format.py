"""What a bucket holds is read by each release that knows its format, and by no other."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.message import HostnameInvalid, normalise_hostname
from registry.errors import StoreOpenError, StoreUnavailable
from registry.store.nats.format import (
    EXPECTED,
    decode_node,
    hostname_of,
    node_key,
    node_value,
    row_of,
)
from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from registry.store.protocol import NodeStore, Row
from tests.support.registry.nats.buckets import backend_at, open_bucket
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import shared
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.waiting import async_until

LATER = b'{"by":"later-1","uptime":1.0,"format":2,"of":{"later":["versions"]}}'
VERSIONS = Path(__file__).with_name("versions")
STORED = {
    "by": "later-1",
    "uptime": 1.0,
    "last_update": 1_700_000_000,
    "address": "192.0.2.1",
    "node": {"labels": ["a"], "kv": {}},
}
# What a key of a bucket, and a subject without wildcards, may be.
KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")
DOCUMENT = b'{"labels":["a"],"kv":{"k":"v"}}'


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


@pytest.mark.real
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


@pytest.mark.real
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


@pytest.mark.real
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


@pytest.mark.real
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


def normal(text: str) -> str | None:
    try:
        return normalise_hostname(text)
    except HostnameInvalid:
        return None


HOSTNAMES = (
    st.from_regex(r"[A-Za-z0-9._-]{1,253}\.?", fullmatch=True)
    .map(normal)
    .filter(lambda name: name is not None)
)


@given(HOSTNAMES)
def test_every_hostname_is_a_key_and_comes_back(hostname: str) -> None:
    key = node_key(hostname)

    assert KEY.fullmatch(key)
    assert not key.endswith(".")
    assert all(key.split("."))  # no token of the subject is empty
    assert hostname_of(key) == hostname


@given(
    HOSTNAMES,
    st.lists(st.text()),
    st.dictionaries(st.text(), st.text()),
    st.integers(0, 2**40),
    st.text(),
)
def test_every_node_comes_back_byte_by_byte(
    hostname: str, labels: list[str], kv: dict[str, str], last_update: int, address: str
) -> None:
    encode = msgspec.json.Encoder(order="deterministic").encode
    row = Row(
        hostname, b'{"labels":%b,"kv":%b}' % (encode(labels), encode(kv)), last_update, address
    )

    assert row_of(hostname, decode_node(node_value(row, by="run-1", uptime=1.5))) == row


@pytest.mark.parametrize(
    "document",
    [
        b'{"labels":[],"kv":{},"more":1}',
        b'{"kv":{},"labels":[]}',
        b'{"labels":[ ],"kv": {}}',
        b'{"labels":[1],"kv":{}}',
        b'{"labels":[]}',
        b"[]",
        b'"text"',
    ],
)
def test_what_no_registry_writes_is_rejected(document: bytes) -> None:
    value = node_value(Row("a", document, 0, "x"), by="", uptime=0.0)

    with pytest.raises(msgspec.ValidationError):
        row_of("a", decode_node(value))


@pytest.mark.parametrize("hostname", ["A", "a.", "", "a b"])
def test_a_key_that_is_no_hostname_is_rejected(hostname: str) -> None:
    value = node_value(Row(hostname, DOCUMENT, 0, "x"), by="", uptime=0.0)

    with pytest.raises(msgspec.ValidationError):
        row_of(hostname, decode_node(value))
