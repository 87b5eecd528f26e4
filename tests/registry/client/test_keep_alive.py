import asyncio

import msgspec
import pytest
from aiohttp import web

from registry.client.client import RegistryClient, Unreachable
from registry.message import Heartbeat
from tests.support.registry.fake_servers import http_server, read_request, tcp_server

NODE = [{"hostname": "web-1", "labels": [], "kv": {}, "last_update": 1}]


async def test_all_heartbeats_go_over_one_connection() -> None:
    ports = []

    async def take(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response(NODE)

    async with http_server(take) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        for _ in range(5):
            await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(ports) == 5
    assert len(set(ports)) == 1


async def test_a_kept_connection_that_was_closed_meanwhile_is_made_anew_at_once() -> None:
    connections = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await read_request(reader)
        body = msgspec.json.encode(NODE)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await read_request(reader)  # and closes

    async with tcp_server(once) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        for _ in range(3):
            await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(connections) == 3


async def test_a_registry_that_cuts_new_connections_is_not_asked_twice_for_one_heartbeat() -> None:
    connections = []

    async def cutting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await read_request(reader)

    async with tcp_server(cutting) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        for _ in range(3):
            with pytest.raises(Unreachable):
                await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(connections) == 3
