"""The header by which a client knows that a daemon has answered, and no proxy before it."""

import re

import pytest

from httpd.server.limits import Timeouts
from httpd.server.requests import MAX_HEAD_BYTES
from tests.support.httpd.lane_server import connected, lane_server, read_response, request
from tests.support.httpd.sample_server import WRITER, exchange, sample_server

KEY = f"Authorization: Bearer {WRITER}\r\n".encode()
BRIEF = Timeouts(linger=0.1)


def identities(received: bytes) -> list[bytes]:
    return re.findall(rb"\r\nRollcall: (.*)\r\n", received)


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (200, b"GET /healthz HTTP/1.1\r\nHost: a\r\n"),
        (200, b"HEAD /healthz HTTP/1.1\r\nHost: a\r\n"),
        (401, b"GET /things HTTP/1.1\r\nHost: a\r\n"),
        (401, b"OPTIONS / HTTP/1.1\r\nHost: a\r\n"),
        (401, b"POST /things HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"),
        (404, b"GET /nothing HTTP/1.1\r\nHost: a\r\n" + KEY),
        (405, b"DELETE /healthz HTTP/1.1\r\nHost: a\r\n" + KEY),
        (413, b"POST /things HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n" + KEY),
        (415, b"POST /things HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n" + KEY),
        (400, b"GET / HTTP/9.9\r\nHost: a\r\n"),
        (400, b"\x16\x03\x01\x02\x00"),  # TLS
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (400, b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\nGET / HTTP/1.1\r\nHost: a\r\n"),
        (400, b"\r\n\r\n\x00\r\nQUIT\n"),
        (414, b"GET /" + b"x" * MAX_HEAD_BYTES),
        (431, b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES),
    ],
)
async def test_every_answer_says_which_daemon_it_is_from(status: int, sent: bytes) -> None:
    async with sample_server(timeouts=BRIEF) as address:
        received = await exchange(address, sent + b"Connection: close\r\n\r\n")
    assert received.split(b" ")[1] == b"%d" % status
    assert identities(received) == [b"sample"]


async def test_a_client_that_finds_no_room_is_answered_by_the_daemon_too() -> None:
    async with lane_server(max_connections=1) as (api, address), connected(address) as (_, writer):
        writer.write(request("later"))
        await api.is_waiting.wait()
        received = await exchange(address, b"")
        api.later.set_result(None)
    assert received.startswith(b"HTTP/1.1 503 ")
    assert identities(received) == [b"sample"]


async def test_the_lane_says_it_also_where_a_request_fails() -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        for name, expected in (("now", 200), ("broken", 500), ("other", 200)):
            writer.write(request(name))
            status, headers, _ = await read_response(reader)
            assert (status, headers["Rollcall"]) == (expected, "sample")
