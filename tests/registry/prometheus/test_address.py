"""A host that posts from another address: its own address is the new one, at once and later."""

from typing import Any

import aiohttp
import msgspec
import pytest

from registry.prometheus.targets import TargetOptions
from registry.store.protocol import Row
from tests.support.registry.in_process import (
    OPS,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore

LABELS = ["prometheus:web:host:127.0.0.1", "prometheus:web:host:127.0.0.2"]


async def post_from(registry: InProcessRegistry, address: str, labels: list[str]) -> None:
    """Send a heartbeat from one of this machine's addresses."""
    host, port = registry.address
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    headers = {"Authorization": OPS}
    body: dict[str, Any] = {"labels": labels, "kv": {}}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(f"http://{host}:{port}/nodes/h1", json=body) as answer,
    ):
        assert answer.status == 200


async def targets(registry: InProcessRegistry) -> list[list[str]]:
    groups = await registry.get("/prometheus/web?format=http_sd")
    return [group["targets"] for group in groups]


@pytest.mark.slow
async def test_a_host_that_moves_may_name_its_new_address_and_no_longer_the_old_one() -> None:
    async with in_process_registry(target_options=TargetOptions(own_only=True)) as registry:
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"):
            await post_from(registry, address, LABELS)

            assert await targets(registry) == [[f"{address}:9100"]]
        assert (await registry.counts())["unchanged"] == 3
        await registry.components.nodes.writes.flush()
        assert registry.store.rows["h1"].address == "127.0.0.2"


async def test_after_a_restart_a_host_may_name_the_address_that_it_had_last() -> None:
    document = msgspec.json.encode({"labels": LABELS, "kv": {}})
    store = MemoryStore([Row("h1", document, 1_600_000_000, "127.0.0.2")])
    async with in_process_registry(
        target_options=TargetOptions(own_only=True), store=store
    ) as registry:
        assert await targets(registry) == [["127.0.0.2:9100"]]
