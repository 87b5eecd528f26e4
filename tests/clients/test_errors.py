import asyncio

import pytest
from aiohttp import web

from clients.errors import NotARegistry, TooSlow, Unreachable
from tests.support.registry.client import failure_of
from tests.support.registry.fake_servers import HttpServer, read_request, tcp_server


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>hello</html>",
        b"[]",
        b"{}",
        b'[{"hostname":"web-2","labels":[],"kv":{},"last_update":1}]',
        b'[{"hostname":"web-1","labels":[1],"kv":{},"last_update":1}]',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_a_200_that_is_not_the_node_is_garbage(body: bytes, http_server: HttpServer) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    assert isinstance(await failure_of(await http_server(handler)), NotARegistry)


@pytest.mark.parametrize(
    "reply",
    [
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: zero\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\x00" * 100,
    ],
)
async def test_what_is_no_http_is_garbage(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(reply)
        await writer.drain()

    async with tcp_server(talk) as url:
        assert isinstance(await failure_of(url), NotARegistry)


async def test_a_cut_connection_is_unreachable() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.transport.abort()

    async with tcp_server(talk) as url:
        assert isinstance(await failure_of(url), Unreachable)


@pytest.mark.parametrize(
    ("begun", "is_hinted"), [(b"", True), (b"HTTP/1.1 200 OK\r\nContent-", False)]
)
async def test_a_connection_that_is_closed_without_an_answer_may_be_one_to_a_tls_port(
    begun: bytes, *, is_hinted: bool
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(begun)
        await writer.drain()

    async with tcp_server(talk) as url:
        failure = await failure_of(url)

    assert isinstance(failure, Unreachable)
    assert str(failure).endswith("; the port may speak TLS: use https://") is is_hinted


async def test_an_answer_cut_in_the_middle_is_not_taken_for_one() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nRollcall: registry\r\nContent-Length: 100\r\n\r\n[{")
        await writer.drain()

    async with tcp_server(talk) as url:
        assert isinstance(await failure_of(url), NotARegistry | Unreachable)


async def test_a_registry_that_is_not_there_is_unreachable(unused_tcp_port: int) -> None:
    failure = await failure_of(f"http://127.0.0.1:{unused_tcp_port}")

    assert isinstance(failure, Unreachable)
    assert str(failure) == f"no connection to 127.0.0.1:{unused_tcp_port}: Connection refused"


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    failure = await failure_of("http://registry.invalid:7655")

    assert isinstance(failure, Unreachable)
    assert "registry.invalid" in str(failure)


@pytest.mark.slow
async def test_a_registry_that_accepts_and_never_answers_is_slow() -> None:
    async def talk(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(talk) as url:
        failure = await failure_of(url, seconds=0.2)

    assert isinstance(failure, TooSlow)
    assert "0.2 s" in str(failure)


@pytest.mark.slow
async def test_an_answer_that_drips_is_slow() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nRollcall: registry\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async with tcp_server(talk) as url:
        assert isinstance(await failure_of(url, seconds=0.3), TooSlow)


async def test_an_error_without_end_takes_no_memory_without_end() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
            await writer.drain()

    async with tcp_server(talk) as url:
        assert isinstance(await failure_of(url), NotARegistry | Unreachable)
