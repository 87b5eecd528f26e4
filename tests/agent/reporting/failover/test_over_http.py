"""Failover over HTTP: registries that say 503 while they load, and what becomes of connections."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.agent.fleet import MOVED, SimulatedFleet, SimulatedHost
from tests.support.registry.fake_servers import HttpServer
from tests.support.waiting import async_until

KEY = "k" * 20
IDENTITY = {"Rollcall": "registry"}


class LoadingRegistry:
    """Takes heartbeats, or answers 503 while ``loading``; knows its clients' connections."""

    def __init__(self) -> None:
        self.url = ""
        self.loading = False
        self.taken = 0
        self.rejected = 0
        self.transports: set[asyncio.Transport] = set()
        self.hidden_by: int | None = None
        """The status that a proxy before the registry answers in its place."""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a heartbeat."""
        assert isinstance(request.transport, asyncio.Transport)
        self.transports.add(request.transport)
        if self.hidden_by is not None:
            page = "<html><h1>The plain HTTP request was sent to HTTPS port</h1></html>"
            return web.Response(status=self.hidden_by, text=page, content_type="text/html")
        if self.loading:
            self.rejected += 1
            return web.json_response({"message": "loading"}, status=503, headers=IDENTITY)
        self.taken += 1
        name = request.path.rpartition("/")[2]
        nodes = [{"hostname": name, **await request.json(), "last_update": 1}]
        return web.json_response(nodes, headers=IDENTITY)

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return sum(not transport.is_closing() for transport in self.transports)


class Group:
    """Three registries, and a host that uses one of them."""

    def __init__(self, folder: Path, registries: list[LoadingRegistry]) -> None:
        urls = [registry.url for registry in registries]
        self.fleet = SimulatedFleet(folder, urls, count=1, key=KEY, seconds=0.05)
        self.registries = {registry.url: registry for registry in registries}

    @property
    def host(self) -> SimulatedHost:
        """The host."""
        return self.fleet.hosts[0]

    @property
    def used(self) -> LoadingRegistry:
        """The registry that the host uses."""
        return self.registries[self.host.failover.url]


@pytest.fixture
async def group(tmp_path: Path, http_server: HttpServer) -> AsyncIterator[Group]:
    """Yield a group that has taken a first heartbeat."""
    registries = [LoadingRegistry() for _ in range(3)]
    for registry in registries:
        registry.url = await http_server(registry.answer, daemon=None)
    group = Group(tmp_path, registries)
    async with group.fleet.running():
        await group.fleet.until_taken(1)
        yield group


@pytest.mark.slow
async def test_heartbeats_share_a_connection_and_a_move_closes_it(group: Group) -> None:
    first = group.used
    await group.fleet.until_taken(5)
    assert len(first.transports) == 1

    first.loading = True
    await group.fleet.until_taken(5)

    assert group.used is not first
    assert len(group.used.transports) == 1

    async def closed() -> bool:
        return first.open_connections == 0

    await async_until(closed)
    first.loading = False
    rejected, taken = first.rejected, first.taken
    await group.fleet.until_taken(20)
    assert (first.rejected, first.taken) == (rejected, taken)
    assert group.host.moves == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 429, 502])
async def test_an_error_page_of_a_proxy_moves_the_agent_and_is_in_the_log(
    group: Group, status: int
) -> None:
    hidden = group.used
    hidden.hidden_by = status
    await group.fleet.until_taken(2)

    assert group.used is not hidden
    moves = [line for line in group.host.lines.entries if line["event"] == MOVED]
    assert [(line["from"], line["kind"]) for line in moves] == [(hidden.url, "garbage")]
    words = "The plain HTTP request was sent to HTTPS port"
    assert f"it answers {status}, and not as a registry does: {words}" in moves[0]["reason"]


@pytest.mark.slow
async def test_while_all_are_loading_the_host_stays_and_keeps_one_connection(group: Group) -> None:
    used = group.used
    for registry in group.registries.values():
        registry.loading = True

    async def rejected() -> bool:
        return all(registry.rejected >= 5 for registry in group.registries.values())

    await async_until(rejected)
    assert group.used is used
    used.loading = False
    await group.fleet.until_taken(1)

    async def one_is_kept() -> bool:
        return [each.open_connections for each in group.registries.values()].count(0) == 2

    await async_until(one_is_kept)
    assert group.used is used
    assert used.open_connections == 1
    assert group.host.moves == 0
