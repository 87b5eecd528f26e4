import asyncio

import aiohttp
import pytest

from httpd.server.listener import ListenError
from tests.support.httpd.sample_server import WRITER, SampleApi, sample_server
from tests.support.httpd.slow_client import slow_client

LONG = 600.0  # the end has to wait for nothing for so long
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_an_address_in_use_stops_the_start_with_its_name() -> None:
    async with sample_server() as (host, port):
        with pytest.raises(ListenError, match=f"cannot listen on {host}:{port}: Address already"):
            async with sample_server(port=port):
                pass


@pytest.mark.slow
async def test_a_request_under_way_is_answered_before_the_end() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode())
        assert await slow_requests(host, port) == 1
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_body_that_comes_after_the_end_began_is_still_taken() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 4\r\n\r\nab")
        assert await slow_requests(host, port) == 1
        rest = asyncio.create_task(_when_refused(host, port, writer, b"cd"))
    await rest
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n4")
    writer.close()


@pytest.mark.parametrize("unfinished", [b"", HEALTH[:10]])
async def test_the_end_does_not_wait_for_who_asks_nothing(unfinished: bytes) -> None:
    async with sample_server(drain_seconds=LONG) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEALTH)
        assert (await reader.readuntil(b'ok"}')).startswith(b"HTTP/1.1 200")
        writer.write(unfinished)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.slow
async def test_an_answer_that_is_taken_slowly_is_sent_to_its_end() -> None:
    api = SampleApi()
    server = sample_server(api=api, drain_seconds=LONG)
    address = await server.__aenter__()
    async with slow_client(address, None) as client:
        await client.send(
            f"GET /sized/100000 HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode()
        )
        await api.sized_begun.wait()
        ending = asyncio.create_task(server.__aexit__(None, None, None))
        taken = 0
        while piece := await client.take():
            taken += len(piece)
    assert taken > 100_000
    await ending


@pytest.mark.slow
async def test_the_end_waits_no_longer_than_it_was_told_to() -> None:
    async with sample_server(drain_seconds=0.01) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 4\r\n\r\nab")
        assert await slow_requests(host, port) == 1
    assert not (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def _when_refused(host: str, port: int, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write the data as soon as the daemon takes no connection any more."""
    while True:
        try:
            _, probe = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            break
        probe.close()
    writer.write(data)


async def slow_requests(host: str, port: int) -> int:
    """Wait until the slow request has begun."""
    async with aiohttp.ClientSession(headers={"Authorization": WRITER}) as session:
        while True:
            async with session.get(f"http://{host}:{port}/slow/begun") as response:
                begun: int = await response.json()
            if begun:
                return begun
