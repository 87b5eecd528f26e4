import asyncio
import json

import pytest

from tests.httpd.daemon import WRITER, daemon


async def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send the bytes as they are and read until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def message(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return str(json.loads(body)["message"])


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 10_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"POST /things HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_a_message_and_the_end_of_the_connection(
    request_: bytes,
) -> None:
    async with daemon() as address:
        answer = await exchange(address, request_)
    assert answer.split(b" ")[1] == b"400"
    assert message(answer) == "this is no well-formed HTTP/1.1 request"


@pytest.mark.parametrize("chunk", [b"zz\r\nabc", b"5\r\nabcdeXX"])
async def test_a_body_that_is_framed_wrongly_is_refused(chunk: bytes) -> None:
    async with daemon() as address:
        answer = await exchange(
            address,
            b"POST /things HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
            + WRITER.encode()
            + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunk,
        )
    assert answer.split(b" ")[1] == b"400"


async def test_a_body_that_drips_is_refused_in_time() -> None:
    async with daemon() as address:
        answer = await exchange(
            address,
            b"POST /things HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
            + WRITER.encode()
            + b"\r\nContent-Length: 100\r\n\r\n{",
        )
    assert answer.startswith(b"HTTP/1.1 408")
    assert message(answer) == "the body did not arrive within 0.2 seconds"


async def test_one_connection_too_many_is_told_so_and_a_free_place_is_given_again() -> None:
    async with daemon(max_connections=1) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        refused = await exchange(address, b"")
        assert refused.startswith(b"HTTP/1.1 503")
        assert message(refused) == "too many connections"
        writer.close()
        await writer.wait_closed()
        request = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        while not (answer := await exchange(address, request)).startswith(b"HTTP/1.1 200"):
            assert answer.startswith(b"HTTP/1.1 503")


async def test_headers_may_come_in_pieces() -> None:
    async with daemon() as address:
        reader, writer = await asyncio.open_connection(*address)
        for piece in (b"GET /heal", b"thz HTTP/1.1\r\nHo", b"st: a\r\n\r\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
