import asyncio

import msgspec
import pytest
from aiohttp import web

from clients.errors import TooSlow, Unreachable
from clients.message import Heartbeat
from clients.registry import RegistryClient, Timeouts
from tests.support.httpd.loops import FastForwardLoop
from tests.support.registry.fake_servers import HttpServer, read_request, tcp_server

NODE = [{"hostname": "web-1", "labels": [], "kv": {}, "last_update": 1}]
BODY = msgspec.json.encode(NODE)
ANSWER = b"HTTP/1.1 200 OK\r\nRollcall: registry\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


async def test_all_heartbeats_go_over_one_connection(http_server: HttpServer) -> None:
    ports = []

    async def take(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response(NODE)

    async with RegistryClient(url=await http_server(take), key=lambda: "k" * 20) as client:
        for _ in range(5):
            await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(ports) == 5
    assert len(set(ports)) == 1


async def test_a_kept_connection_that_was_closed_meanwhile_is_made_anew_at_once() -> None:
    connections = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await read_request(reader)
        writer.write(ANSWER)
        await read_request(reader)  # and closes

    async with tcp_server(once) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        for _ in range(3):
            await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(connections) == 3


async def test_a_client_that_disconnects_closes_its_connection_and_makes_another() -> None:
    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        try:
            while True:
                await read_request(reader)
                writer.write(ANSWER)
        finally:
            ended[-1].set()

    async with tcp_server(serve) as url, RegistryClient(url=url, key=lambda: "k" * 20) as client:
        await client.disconnect()
        await client.report("web-1", Heartbeat(labels=[], kv={}))
        await client.disconnect()
        async with asyncio.timeout(30):
            await ended[0].wait()
        await client.disconnect()
        await client.report("web-1", Heartbeat(labels=[], kv={}))

    assert len(ended) == 2


def test_a_second_try_on_a_new_connection_is_within_the_time_limit_of_the_first() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FastForwardLoop)
        await read_request(reader)
        if len(connections) == 1:
            writer.write(ANSWER)
            await read_request(reader)
            await loop.advance(60)  # and closes
        else:
            await loop.advance(60)
            writer.write(ANSWER)

    async def report_twice() -> None:
        async with (
            tcp_server(serve) as url,
            RegistryClient(url=url, key=lambda: "k" * 20, timeouts=Timeouts(100)) as client,
        ):
            await client.report("web-1", Heartbeat(labels=[], kv={}))
            with pytest.raises(TooSlow):
                await client.report("web-1", Heartbeat(labels=[], kv={}))

    with asyncio.Runner(loop_factory=FastForwardLoop) as runner:
        runner.run(report_twice())
    assert len(connections) == 2


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
