"""What the registry answers at once is what it answers otherwise, byte for byte."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.api.targets import SCRAPER as REFRESH
from registry.errors import StoreFull
from tests.support.registry.in_process import (
    OPS,
    SCRAPER,
    WEB_HOSTS,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.memory_store import MemoryStore

LABELS = ["prometheus:web", "prometheus:web:rack:r1", "service:web"]
PLAIN = {"labels": LABELS, "kv": {"rack": "r1"}}
SCRAPES = {REFRESH: "60", "User-Agent": "Prometheus/2.42"}


class ResponseParts(NamedTuple):
    """Status, headers but those of the connection and of the moment, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """A connection that sends each request in one piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect_idle(cls, registry: InProcessRegistry) -> "Client":
        """Connect, and let the connection come to rest."""
        client = cls(*await asyncio.open_connection(*registry.address))
        assert (await client.ask("GET", "/healthz")).status == 200
        return client

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        key: str = OPS,
        headers: Mapping[str, str] | None = None,
    ) -> ResponseParts:
        sent = {"Host": "a", "Authorization": key} | dict(headers or {})
        if method == "POST":
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *[f"{name}: {sent[name]}" for name in sent], "", ""]
        self._writer.write("\r\n".join(lines).encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        told = dict(line.split(": ", 1) for line in head[1:] if line)
        content = await self._reader.readexactly(int(told["Content-Length"]))
        told.pop("Date")
        told.pop("Connection", None)
        return ResponseParts(int(head[0].split()[1]), told, content)

    def close(self) -> None:
        self._writer.close()


async def both(
    registry: InProcessRegistry,
    client: Client,
    method: str,
    path: str,
    body: bytes = b"",
    **options: Any,
) -> ResponseParts:
    """Ask at once and the ordinary way; the answers are the same. Give them."""
    at_once = await client.ask(method, path, body, **options)
    other = await Client.connect_idle(registry)
    options["headers"] = dict(options.get("headers") or {}) | {"Connection": "close"}
    ordinary = await other.ask(method, path, body, **options)
    other.close()
    assert at_once == ordinary
    return at_once


@pytest.mark.parametrize("headers", [{}, SCRAPES], ids=["nested", "flat"])
async def test_targets_are_the_same(
    registry: InProcessRegistry, headers: Mapping[str, str]
) -> None:
    client = await Client.connect_idle(registry)
    for hosts in (("a",), ("a", "b"), ("c",)):
        for host in hosts:
            await registry.post(host, LABELS)
        for _ in range(2):
            await both(registry, client, "GET", "/prometheus/web", headers=headers)
    told = await both(registry, client, "GET", "/prometheus/web", headers=headers)
    assert told.status == 200
    assert told.headers["ETag"].startswith('"')
    await registry.ask("DELETE", "/nodes/a")
    gone = await both(registry, client, "GET", "/prometheus/web", headers=headers)
    assert gone.body.count(b"r1") == told.body.count(b"r1") * 2 // 3
    await both(registry, client, "GET", "/prometheus/nobody", headers=headers)
    client.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["web-1", "WEB-1", "web-2.", "db-1", "a..b", "x" * 300]),
            st.one_of(
                st.sampled_from([PLAIN, PLAIN | {"hostname": "web-1"}, PLAIN | {"more": 1}]).map(
                    lambda body: json.dumps(body).encode()
                ),
                st.sampled_from([b'{"labels":[],"labels":[],"kv":{}}', b'{"labels":[""],"kv":{}}']),
                st.binary(max_size=20),
            ),
            st.sampled_from([OPS, SCRAPER, WEB_HOSTS, "no-key-0123456789"]),
        ),
        min_size=1,
        max_size=8,
    )
)
async def test_heartbeats_are_the_same(beats: Sequence[tuple[str, bytes, str]]) -> None:
    async with in_process_registry() as registry:
        client = await Client.connect_idle(registry)
        for host, body, key in beats:
            await both(registry, client, "POST", f"/nodes/{host}", body, key=key)
        client.close()


async def test_a_clone_is_refused_and_counted_once(registry: InProcessRegistry) -> None:
    client = await Client.connect_idle(registry)
    for identity, status in (("one", 200), ("two", 409), ("one", 200)):
        body = json.dumps({"labels": [], "kv": {"agent.id": identity}}).encode()
        assert (await client.ask("POST", "/nodes/a", body)).status == status
    assert (await registry.counts())["clone"] == 1
    client.close()


async def test_what_the_store_does_not_take_is_refused_at_once_too() -> None:
    store = MemoryStore()
    async with in_process_registry(store=store) as registry:
        client = await Client.connect_idle(registry)
        await client.ask("POST", "/nodes/a", json.dumps(PLAIN).encode())
        store.failure = StoreFull("no room")
        for body in (PLAIN | {"kv": {}}, PLAIN):
            refused = await client.ask("POST", "/nodes/a", json.dumps(body).encode())
            assert refused.status == 503
            assert refused.headers["Retry-After"] == "5"
        store.failure = None
        assert (await client.ask("POST", "/nodes/b", json.dumps(PLAIN).encode())).status == 200
        client.close()


async def test_scrapes_are_counted_with_their_consumer(registry: InProcessRegistry) -> None:
    await registry.post("a", LABELS)
    client = await Client.connect_idle(registry)
    for _ in range(3):
        await client.ask("GET", "/prometheus/web", key=SCRAPER, headers=SCRAPES)
    assert [scraper[:2] for scraper in registry.components.scrapers.ages()] == [
        ("scraper", "Prometheus/2.42")
    ]
    page = (await client.ask("GET", "/metrics")).body.decode()
    series = 'method="GET",route="/prometheus/{service}",status="200"'
    assert f"rollcall_http_request_duration_seconds_count{{{series}}} 3.0" in page
    client.close()
