import asyncio
import json
from typing import Any

import pytest

from httpd.server.limits import Timeouts
from httpd.server.requests import MAX_HEAD_BYTES, MAX_HEAD_FIELDS
from tests.support.httpd.lane_server import lane_server
from tests.support.httpd.sample_server import WRITER, exchange, sample_server


def message(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return str(json.loads(body)["message"])


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"PUT /things\nH",
        b"GET / HTTP/9.9\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"POST /things HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_a_message_and_the_end_of_the_connection(
    request_: bytes,
) -> None:
    async with sample_server() as address:
        answer = await exchange(address, request_)
    assert answer.split(b" ")[1] == b"400"
    assert message(answer) == "this is no well-formed HTTP/1.1 request"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (b"/healthz?x=" + b"y" * 16_000, b""),
        (b"/healthz", b"X: " + b"y" * 16_000 + b"\r\n"),
        (b"/healthz", b"X: y\r\n" * (MAX_HEAD_FIELDS - 2)),
    ],
)
async def test_a_head_within_the_limits_is_accepted(path: bytes, headers: bytes) -> None:
    async with sample_server() as address:
        head = b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%b\r\n" % (path, headers)
        answer = await exchange(address, head)
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("head", "status", "limit"),
    [
        (b"GET /?" + b"x" * MAX_HEAD_BYTES, 414, MAX_HEAD_BYTES),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_HEAD_BYTES, 431, MAX_HEAD_BYTES),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEAD_FIELDS + 1), 431, MAX_HEAD_FIELDS),
    ],
)
async def test_a_head_beyond_the_limits_is_rejected_with_the_limit(
    head: bytes, status: int, limit: int
) -> None:
    async with sample_server() as address:
        answer = await exchange(address, head + b"\r\n\r\n")
    assert answer.split(b" ")[1] == b"%d" % status
    assert f"limit of {limit}" in message(answer)
    assert "; send " in message(answer)


async def test_nothing_follows_the_last_answer() -> None:
    async with sample_server() as address:
        last = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await exchange(address, last + b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_interrupted_by_a_wrong_frame_is_not_taken_for_whole() -> None:
    async with sample_server() as address:
        reader, writer = await asyncio.open_connection(*address)
        head = f"POST /things HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b'18\r\n{"port": 80, "tags": {}}\r\nzz\r\n')
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert message(answer) == "the body is incomplete or framed wrongly"


@pytest.mark.slow
async def test_a_body_that_drips_is_rejected_in_time() -> None:
    async with sample_server(timeouts=Timeouts(linger=0.1)) as address:
        answer = await exchange(
            address,
            b"POST /things HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
            + WRITER.encode()
            + b"\r\nContent-Length: 100\r\n\r\n{",
        )
    assert answer.startswith(b"HTTP/1.1 408")
    assert message(answer) == "the body did not arrive within 0.2 seconds"


@pytest.mark.slow
async def test_one_connection_too_many_is_reported_so_and_a_free_place_is_given_again() -> None:
    async with sample_server(max_connections=1) as address:
        reader, writer = await asyncio.open_connection(*address)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")  # it is busy
        rejected = await exchange(address, b"")
        assert rejected.startswith(b"HTTP/1.1 503")
        assert message(rejected) == "too many connections"
        writer.close()
        await writer.wait_closed()
        request = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        while not (answer := await exchange(address, request)).startswith(b"HTTP/1.1 200"):
            assert answer.startswith(b"HTTP/1.1 503")


@pytest.mark.slow
async def test_headers_that_do_not_end_are_cut_off() -> None:
    async with sample_server(timeouts=Timeouts(header=0.1)) as address:
        assert await exchange(address, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Drip") == b""


@pytest.mark.slow
async def test_an_idle_connection_is_closed() -> None:
    async with sample_server(timeouts=Timeouts(idle=0.1)) as address:
        assert await exchange(address, b"") == b""


@pytest.mark.slow
@pytest.mark.parametrize("expected", ["100-continue", "foo", "foo\r\nExpect: bar"])
@pytest.mark.parametrize("path", ["/things", "/nothing"])
async def test_nobody_is_invited_to_send_a_body_before_the_key_was_looked_at(
    expected: str, path: str
) -> None:
    async with sample_server(timeouts=Timeouts(linger=0.1)) as address:
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nExpect: {expected}\r\n"
        answer = await exchange(
            address, head.encode() + b"Connection: close\r\nContent-Length: 4\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"Server: rollcall\r\n" in answer


async def test_with_an_expectation_too_headers_need_not_be_utf_8() -> None:
    async with sample_server() as address:
        head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: \xff\r\nExpect: nonsense\r\n"
        assert (await exchange(address, head + b"Connection: close\r\n\r\n")).startswith(
            b"HTTP/1.1 200"
        )


async def test_who_waits_to_be_invited_is_invited() -> None:
    async with sample_server() as address:
        reader, writer = await asyncio.open_connection(*address)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_an_upgrade_is_ignored_and_the_body_read() -> None:
    async with sample_server() as address:
        reader, writer = await asyncio.open_connection(*address)
        upgrade = b"Connection: upgrade, keep-alive\r\nUpgrade: websocket\r\n"
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\n" + upgrade + b"Content-Length: 2\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        await reader.readuntil(b"}")
        writer.write(b"ab")
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_what_is_no_http_is_counted() -> None:
    async with sample_server() as address:
        await exchange(address, b"GARBAGE\r\n\r\n")
        request = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        answer = await exchange(address, request.encode() + b"Connection: close\r\n\r\n")
    assert b'rollcall_http_rejections_total{status="400"} 1.0\n' in answer


@pytest.mark.parametrize("server", [sample_server, lane_server])
async def test_http_2_is_answered_at_once_with_what_is_spoken_here(server: Any) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    never = Timeouts(header=3600, linger=0.1)
    async with server(timeouts=never) as started:
        address = started[1] if server is lane_server else started
        answer = await exchange(address, preface)
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert message(answer).startswith("this service speaks HTTP/1.1, and not HTTP/2")
