"""The client of an agent, with servers that answer as agents do, and with others."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from clients.agent import AgentClient
from clients.errors import AgentRejected, AgentUnreachable
from clients.tls import ClientTls
from tests.support.certificates import Authority
from tests.support.cli.fake_agent import APP_RECORD
from tests.support.daemons import FreePort
from tests.support.registry.client import server_context
from tests.support.registry.fake_servers import HttpServer, read_request, silent, tcp_server

KEY = "ops-key-0123456789"
PLAN = {
    "app": APP_RECORD,
    "replaces_container": False,
    "seconds_without_service": 0,
    "message": None,
}


def client(url: str, *, timeout_seconds: float = 10) -> AgentClient:
    return AgentClient(
        url=url, server_hostname="web-1", key=lambda: KEY, timeout_seconds=timeout_seconds
    )


async def test_an_agent_that_wants_a_client_certificate_is_reported_without_names_of_settings(
    tmp_path: Path, http_server: HttpServer
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response([])

    authority = Authority(tmp_path)
    tls = server_context(authority.issue("web-1"), client_ca=authority.ca)
    url = await http_server(answer, tls=tls, daemon="agent")
    async with AgentClient(
        url=url,
        server_hostname="web-1",
        key=lambda: KEY,
        client_tls=ClientTls(ca=authority.ca),
    ) as opened:
        with pytest.raises(AgentUnreachable) as raised:
            await opened.apps()

    assert str(raised.value).startswith("it does not accept the client certificate of this command")


def keepalive_of_connection(port: int) -> tuple[int, ...]:
    """Return what the kernel has for this process's one connection to a port.

    It is whether keepalive is on, the idle seconds, the seconds between probes, and their number.
    """
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(each.name))) as connection:
            if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                return (
                    connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    *(connection.getsockopt(socket.IPPROTO_TCP, option) for option in options),
                )
    raise AssertionError


async def test_the_key_is_sent_and_names_are_one_part_of_the_path(http_server: HttpServer) -> None:
    seen: list[tuple[str, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.raw_path, request.headers["Authorization"]))
        return web.json_response(PLAN if "dry_run" in request.query else APP_RECORD)

    async with client(await http_server(handler, daemon="agent")) as agent:
        await agent.app("a/b?c")
        await agent.change("shop", "stop")
        await agent.delete("shop", keep_data=True, dry_run=True)

    assert seen == [
        ("GET", "/v1/apps/a%2Fb%3Fc", f"Bearer {KEY}"),
        ("PUT", "/v1/apps/shop/stop", f"Bearer {KEY}"),
        ("DELETE", "/v1/apps/shop?keep_data=true&dry_run=true", f"Bearer {KEY}"),
    ]


async def test_a_password_is_sent_as_the_text_that_it_is(http_server: HttpServer) -> None:
    seen: list[tuple[str, bytes]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.content_type, await request.read()))
        return web.json_response(APP_RECORD)

    async with client(await http_server(handler, daemon="agent")) as agent:
        await agent.set_password("shop", '"quoted: ä"')

    assert seen == [("text/plain", '"quoted: ä"'.encode())]


async def test_the_health_of_an_agent_is_asked_without_the_key(http_server: HttpServer) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.json_response({"message": "the engine is away"}, status=503)

    async with client(await http_server(handler, daemon="agent")) as agent:
        with pytest.raises(AgentRejected, match="the engine is away") as raised:
            await agent.health()

    assert raised.value.status == 503


async def test_a_redirect_is_not_followed(http_server: HttpServer) -> None:
    elsewhere: list[str] = []

    async def collect(request: web.Request) -> web.Response:
        elsewhere.append(request.path)
        return web.json_response([])

    target = await http_server(collect, daemon="agent")

    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": target})

    async with client(await http_server(redirect, daemon="agent")) as agent:
        with pytest.raises(AgentRejected) as raised:
            await agent.apps()

    assert (raised.value.status, elsewhere) == (307, [])


@pytest.mark.parametrize("text", ["<html>", '{"message": ', "[1]", "\udcff"])
async def test_an_error_of_what_is_no_agent_says_so(text: str, http_server: HttpServer) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=404, body=text.encode("utf-8", "surrogateescape"))

    async with client(await http_server(handler, daemon=None)) as agent:
        with pytest.raises(AgentUnreachable, match=r"answers 404, and not as an agent does"):
            await agent.app("shop")


async def test_an_answer_that_is_no_json_is_none_of_an_agent(http_server: HttpServer) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with client(await http_server(handler, daemon="agent")) as agent:
        with pytest.raises(AgentUnreachable, match="no agent"):
            await agent.apps()


async def test_a_read_has_a_limit_of_time() -> None:
    async with tcp_server(silent) as url, client(url, timeout_seconds=0.05) as agent:
        with pytest.raises(AgentUnreachable, match=r"no answer within 0\.05 s"):
            await agent.apps()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "why"),
    [(200, "its container engine does not"), (503, "the engine is away"), (None, None)],
)
async def test_an_agent_whose_engine_hangs_answers_itself(
    http_server: HttpServer, status: int | None, why: str | None
) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path != "/healthz" or status is None:
            await asyncio.Event().wait()
        return web.json_response({"message": "the engine is away"}, status=status or 200)

    url = await http_server(handler, daemon="agent")
    async with client(url, timeout_seconds=0.5) as agent:
        with pytest.raises(AgentUnreachable) as raised:
            await agent.apps()

    reported = "" if why is None else f", but the agent answers: {why}"
    assert str(raised.value) == f"no answer within 0.5 s{reported}"


@pytest.mark.slow
async def test_a_change_may_take_longer_than_a_read(http_server: HttpServer) -> None:
    ended = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        await ended.wait()
        return web.json_response(APP_RECORD)

    # The limit is one of the connection, too, which a busy machine must keep.
    async with client(await http_server(handler, daemon="agent"), timeout_seconds=1) as agent:
        change = asyncio.create_task(agent.change("shop", "rebuild"))
        with pytest.raises(AgentUnreachable, match="no answer within 1 s"):
            await agent.app("shop")
        ended.set()
        assert await change == APP_RECORD


async def test_a_tar_goes_out_in_pieces_and_one_that_is_interrupted_is_an_error(
    http_server: HttpServer,
) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.abort()
        return response

    received = bytearray()

    async def receive(agent: AgentClient) -> None:
        async with agent.data("shop", pause=True) as pieces:
            async for piece in pieces:
                received.extend(piece)

    async with client(await http_server(break_off, daemon="agent")) as agent:
        with pytest.raises(AgentUnreachable, match="interrupted"):
            await receive(agent)

    assert b"half of it".startswith(received)


async def test_a_change_whose_connection_is_lost_is_not_sent_again() -> None:
    sent: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        sent.append(await read_request(reader))

    async with tcp_server(hang_up) as url, client(url) as agent:
        for change in (agent.change("shop", "rollback"), agent.delete("shop")):
            with pytest.raises(AgentUnreachable, match="cut the connection"):
                await change

    assert [each.split(b" ")[0] for each in sent] == [b"PUT", b"DELETE"]


async def test_a_tar_goes_in_in_pieces(http_server: HttpServer) -> None:
    seen: list[tuple[str, bytes]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path_qs, await request.read()))
        return web.json_response(PLAN)

    async def tar() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"piece"

    async with client(await http_server(handler, daemon="agent")) as agent:
        await agent.put_data("shop", tar(), dry_run=True)

    assert seen == [("/v1/apps/shop/data?dry_run=true", b"piece" * 3)]


async def test_an_agent_that_is_not_there_is_unreachable(free_port: FreePort) -> None:
    async with client(f"http://127.0.0.1:{free_port()}") as agent:
        with pytest.raises(AgentUnreachable, match="refused"):
            await agent.apps()


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, ".", "127.1", "[::1", "xn--\x00"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_host_that_cannot_be_is_unreachable(scheme: str, host: str) -> None:
    async with client(f"{scheme}://{host}:1") as agent:
        with pytest.raises(AgentUnreachable):
            await agent.apps()
        with pytest.raises(AgentUnreachable):
            await agent.change("shop", "stop")


async def test_an_error_of_whoever_reads_a_stream_is_their_own(http_server: HttpServer) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=b"x")

    async with client(await http_server(handler, daemon="agent")) as agent:
        for error in (OSError("disk full"), ValueError("no text")):
            with pytest.raises(type(error), match=str(error)):
                async with agent.data("shop", pause=False):
                    raise error


async def test_a_connection_is_interrupted_a_minute_after_the_other_host_has_vanished(
    http_server: HttpServer,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        return web.json_response(APP_RECORD)

    url = await http_server(handler, daemon="agent")
    async with client(url) as agent:
        change = asyncio.create_task(agent.change("shop", "rebuild"))
        await begun.wait()
        found = keepalive_of_connection(int(url.rpartition(":")[2]))
        go_on.set()
        await change

    assert found == (1, 30, 10, 3)
