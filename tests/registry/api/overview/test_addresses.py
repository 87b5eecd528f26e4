"""`address=true`: nodes with the address that their last heartbeats came from."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from registry.nodes.listing import MAX_NODES_AT_ONCE
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.watching import watching

PLAIN = {"hostname", "labels", "kv", "last_update"}


@pytest.fixture
async def proxied() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry behind a proxy, so that a test chooses where heartbeats come from."""
    async with in_process_registry(trusted_proxies=["127.0.0.1"]) as registry:
        yield registry


async def report(registry: InProcessRegistry, hostname: str, address: str, *labels: str) -> None:
    """Send a heartbeat from an address."""
    headers = {"X-Forwarded-For": address}
    answer = await registry.post(hostname, labels, headers=headers)
    assert answer.json()[0].keys() == PLAIN


def addresses(nodes: list[dict[str, Any]]) -> dict[str, str]:
    return {node["hostname"]: node["address"] for node in nodes}


async def test_a_node_is_shown_with_its_address_only_to_those_who_ask_for_it(
    proxied: InProcessRegistry,
) -> None:
    await report(proxied, "web-1", "192.0.2.1", "service:web")
    await report(proxied, "web-2", "2001:db8::2", "service:web")

    for query in ("", "limit=2", "label=service:web", "search=web"):
        plain = await proxied.get(f"/nodes?{query}")
        addressed = await proxied.get(f"/nodes?{query}&address=true")
        assert all(node.keys() == PLAIN for node in plain)
        assert plain == await proxied.get(f"/nodes?{query}&address=false")
        assert addressed == [
            {**plain[0], "address": "192.0.2.1"},
            {**plain[1], "address": "2001:db8::2"},
        ]
    (one,) = await proxied.get("/nodes/web-1?address=true")
    assert one == {**(await proxied.get("/nodes/web-1"))[0], "address": "192.0.2.1"}
    answer = await proxied.ask("GET", "/nodes?limit=1&address=true")
    assert answer.headers["Link"] == '<nodes?limit=1&address=true&after=web-1>; rel="next"'


async def test_a_node_that_moves_changes_only_the_etag_of_a_list_with_addresses(
    proxied: InProcessRegistry,
) -> None:
    for number in range(MAX_NODES_AT_ONCE + 1):  # more than are listed at once
        await report(proxied, f"web-{number}", "192.0.2.1")
    tags = {
        path: (await proxied.ask("GET", path)).headers["ETag"]
        for path in ("/nodes", "/nodes?address=true")
    }
    assert len(set(tags.values())) == 2

    await report(proxied, "web-7", "192.0.2.7")

    statuses = {
        path: (await proxied.ask("GET", path, headers={"If-None-Match": tag})).status
        for path, tag in tags.items()
    }
    assert statuses == {"/nodes": 304, "/nodes?address=true": 200}
    assert addresses(await proxied.get("/nodes?address=true"))["web-7"] == "192.0.2.7"


async def test_a_watch_with_addresses_sends_a_node_that_moves_and_no_other_watch_does(
    proxied: InProcessRegistry,
) -> None:
    await report(proxied, "web-1", "192.0.2.1", "service:web")
    await report(proxied, "db-1", "192.0.2.3")

    async with (
        watching(proxied, "&label=service:web") as plain,
        watching(proxied, "&label=service:web&address=true") as addressed,
    ):
        await plain.until(lambda seen: seen.is_listed)
        await addressed.until(lambda seen: seen.is_listed)
        assert addressed.nodes["web-1"]["address"] == "192.0.2.1"
        await report(proxied, "web-1", "192.0.2.2", "service:web")
        await report(proxied, "db-1", "192.0.2.4")
        await report(proxied, "web-2", "192.0.2.5", "service:web")
        await plain.until(lambda seen: "web-2" in seen.nodes)
        await addressed.until(lambda seen: "web-2" in seen.nodes)

    names = [event.data.get("hostname") for event in plain.events if event.kind == "node"]
    assert names == ["web-1", "web-2"]
    assert all("address" not in node for node in plain.nodes.values())
    reported = [addresses([event.data]) for event in addressed.events if event.kind == "node"]
    assert reported == [{"web-1": "192.0.2.1"}, {"web-1": "192.0.2.2"}, {"web-2": "192.0.2.5"}]


async def test_a_resumed_watch_with_addresses_is_sent_the_moves_since(
    proxied: InProcessRegistry,
) -> None:
    await report(proxied, "web-1", "192.0.2.1")
    watcher = Watcher(proxied.address, "&address=true")
    await watcher.follow(events=3)
    await report(proxied, "web-1", "192.0.2.2")

    await watcher.follow(events=1)

    assert [event.kind for event in watcher.events] == ["reset", "node", "listed", "node"]
    assert watcher.nodes["web-1"]["address"] == "192.0.2.2"


@pytest.mark.parametrize("query", ["address=yes", "address=true&address=true"])
async def test_a_wrong_parameter_is_400(registry: InProcessRegistry, query: str) -> None:
    await registry.post("web-1")

    for path in ("/nodes", "/nodes/web-1"):
        answer = await registry.ask("GET", f"{path}?{query}")
        assert (answer.status, "`address`" in answer.json()["message"]) == (400, True)
