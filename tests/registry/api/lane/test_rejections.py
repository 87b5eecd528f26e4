"""The lane takes heartbeats of those who may send them, and rejects others as handlers do."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from registry.errors import CloneRejected, StoreFull
from tests.support.registry.in_process import OPS, WEB_HOSTS, InProcessRegistry, in_process_registry
from tests.support.registry.lane_client import (
    NODE_KEY,
    PipelinedResponse,
    by_age,
    over_tls,
    read_response,
)
from tests.support.registry.load.pipelined_requests import FIRST, heartbeat, request
from tests.support.registry.stores.memory_store import MemoryStore


@pytest.mark.slow
async def test_with_a_certificate_a_host_speaks_only_for_a_name_in_it(tmp_path: Path) -> None:
    transport = over_tls(tmp_path, ["web-0"])
    async with in_process_registry(tls=transport.server()) as registry:
        for hosts in (["web-0", "web-0", "web-1", "web-0"], ["web-1", "web-0"]):
            reader, writer = await asyncio.open_connection(*registry.address, ssl=transport.client)
            for host in hosts:
                writer.write(request("POST", f"/nodes/{host}", body=FIRST))
                response = await read_response(reader)
                assert response.status == (200 if host == "web-0" else 403)
            writer.close()
        assert [entry.hostname for entry in by_age(registry.components.context.directory)] == [
            "web-0"
        ]


class Client:
    """A connection on which nothing but heartbeats is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, registry: InProcessRegistry, stack: AsyncExitStack) -> "Client":
        reader, writer = await asyncio.open_connection(*registry.address)
        stack.callback(writer.close)
        return cls(reader, writer)

    async def report(self, body: bytes, *, host: str = "a", key: str = OPS) -> PipelinedResponse:
        self._writer.write(request("POST", f"/nodes/{host}", body=body, key=key))
        return await read_response(self._reader)


async def test_a_clone_is_rejected_and_counted_once(registry: InProcessRegistry) -> None:
    async with AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        for identity, status in (("one", 200), ("two", 409), ("one", 200)):
            body = json.dumps({"labels": [], "kv": {"agent.id": identity}}).encode()
            assert (await client.report(body)).status == status
    assert registry.components.nodes.heartbeats.counts.rejected == {CloneRejected: 1}


async def test_what_the_store_does_not_take_is_answered_once_and_rejected_from_then_on() -> None:
    store = MemoryStore()
    async with in_process_registry(store=store) as registry, AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        assert (await client.report(FIRST)).status == 200
        store.failure = StoreFull("no room")
        for body, failures in ((heartbeat(1), 1), (heartbeat(2), 2), (FIRST, 3)):
            rejected = await client.report(body)
            assert rejected == PipelinedResponse(
                507,
                {
                    "Content-Type": "application/json",
                    "Retry-After": "5",
                    "Content-Length": "21",
                    "Server": "rollcall",
                    "Rollcall": "registry",
                },
                b'{"message":"no room"}',
            )
            assert registry.components.nodes.heartbeats.counts.store_failures == failures
        store.failure = None
        assert (await client.report(FIRST, host="b")).status == 200
        assert (await client.report(FIRST)).status == 200


@pytest.mark.parametrize(("key", "other"), [(WEB_HOSTS, "db-0"), (NODE_KEY, "web-1")])
async def test_a_key_is_rejected_for_a_host_that_is_not_its_own_whatever_it_was_good_for_before(
    registry: InProcessRegistry, key: str, other: str
) -> None:
    async with AsyncExitStack() as stack:
        operator = await Client.connect(registry, stack)
        assert (await operator.report(FIRST, host=other)).status == 200
        client = await Client.connect(registry, stack)
        for _ in range(2):
            assert (await client.report(FIRST, host="web-0", key=key)).status == 200
        assert (await client.report(FIRST, host=other, key=key)).status == 403


async def test_a_key_that_is_taken_back_is_rejected_on_a_kept_connection(
    registry: InProcessRegistry,
) -> None:
    async with AsyncExitStack() as stack:
        client = await Client.connect(registry, stack)
        for _ in range(2):
            assert (await client.report(FIRST, host="web-1", key=WEB_HOSTS)).status == 200
        registry.keyring.replace([])
        assert (await client.report(FIRST, host="web-1", key=WEB_HOSTS)).status == 401
