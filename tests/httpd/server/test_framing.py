"""Where requests end, whatever is in their bodies and wherever the bytes are cut."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.server.limits import Timeouts
from tests.support.examples import share_of
from tests.support.httpd.lane_server import Address, connected, lane_server, read_response
from tests.support.httpd.sample_server import WRITER, sample_server

HEAD = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n".encode()
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /things/next HTTP/1.1\r\nHost: a\r\nAuthorization: %b\r\n\r\n" % WRITER.encode()
# What is rejected is rejected before any time is over.
NEVER = Timeouts(header=3600, linger=0.1)
MALFORMED_BODY = "the body is incomplete or framed wrongly"
MALFORMED = "this is no well-formed HTTP/1.1 request"


async def answers(address: Address, data: bytes, cuts: list[int], count: int) -> list[object]:
    """Send the data in pieces; return the contents of so many answers."""
    places = sorted({0, len(data), *[place % len(data) for place in cuts]})
    async with connected(address) as (reader, writer):
        for start, end in pairwise(places):
            writer.write(data[start:end])
            await writer.drain()
            await asyncio.sleep(0)
        return [json.loads((await read_response(reader))[2]) for _ in range(count)]


async def rejection(address: Address, data: bytes) -> tuple[int, object]:
    """Return the status and the text of the answer, behind which the connection ends."""
    async with connected(address) as (reader, writer):
        writer.write(data)
        status, _, body = await read_response(reader)
        assert await reader.read() == b""
    return status, json.loads(body)["message"]


def chunk(content: bytes) -> bytes:
    return b"%X;a=b\r\n%b\r\n" % (len(content), content)


@pytest.mark.slow
@settings(max_examples=share_of(60))
@given(
    st.lists(st.integers(0, 2000), max_size=30),
    st.binary(max_size=900) | st.sampled_from([b"\r\n\r\n" * 9, b"0\r\n\r\n", NEXT]),
)
async def test_a_body_with_a_length_ends_there(cuts: list[int], content: bytes) -> None:
    async with sample_server() as address:
        data = HEAD + b"content-length:  %d \r\n\r\n%b" % (len(content), content) + NEXT
        assert await answers(address, data, cuts, 2) == [len(content), {"name": "next", "q": {}}]


@pytest.mark.slow
@settings(max_examples=share_of(60))
@given(
    st.lists(st.integers(0, 4000), max_size=30),
    st.lists(
        st.binary(min_size=1, max_size=50) | st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n", NEXT]),
        max_size=9,
    ),
    st.sampled_from([b"", b"X: y\r\n", b"X: y\r\nZ: " + b"z" * 500 + b"\r\n"]),
)
async def test_a_body_in_chunks_ends_behind_its_trailers(
    cuts: list[int], chunks: list[bytes], trailers: bytes
) -> None:
    framed = b"".join([*map(chunk, chunks), b"0\r\n", trailers, b"\r\n"])
    size = len(b"".join(chunks))
    async with sample_server() as address:
        found = await answers(address, CHUNKED + framed + NEXT, cuts, 2)
        assert found == [size, {"name": "next", "q": {}}]


@pytest.mark.parametrize(
    "framed",
    [
        b"x\r\n",
        b"+1\r\n",
        b"1\nx",
        b"\r\n\r\n",
        b"1\r\nxx",
        b"1\r\nx\nx",
        b"1" * 2000,
        b"1;" + b"x" * 1100,
        b"1 \r\nx",
        b"0\r\nx\r\nx",
        b"1\r\nx\r\n" * 2000,
        (b"8\r\n" + b"x" * 8 + b"\r\n") * 2000,
        b"0\r\n" + b"a: b\r\n" * 200,
    ],
)
async def test_chunks_that_are_broken_or_small_and_many_are_rejected(framed: bytes) -> None:
    async with sample_server(timeouts=NEVER) as address:
        assert await rejection(address, CHUNKED + framed) == (400, MALFORMED_BODY)


@pytest.mark.slow
async def test_a_large_body_may_have_many_chunks_and_some_small_ones() -> None:
    large = (b"100\r\n" + b"x" * 0x100 + b"\r\n") * 380
    framed = large + b"1\r\nx\r\n" * 400 + b"0\r\n\r\n"
    head = CHUNKED.replace(b"/slow", b"/things/other")
    async with lane_server() as (_, address):
        (found,) = await answers(address, head + framed, [], 1)
        assert found == {"by": "handler", "body": "x" * (380 * 0x100 + 400)}


@pytest.mark.parametrize("nothing", [b"", b"Content-Length: 0\r\n", b"X-Content-Length: 5\r\n"])
async def test_without_a_length_there_is_no_body(nothing: bytes) -> None:
    async with sample_server() as address:
        found = await answers(address, HEAD + nothing + b"\r\n" + NEXT, [], 2)
        assert found == [0, {"name": "next", "q": {}}]


@pytest.mark.slow
@settings(max_examples=share_of(30))
@given(st.lists(st.integers(0, 200), max_size=20))
async def test_empty_lines_before_a_request_are_skipped(cuts: list[int]) -> None:
    async with sample_server() as address:
        data = b"\r\n\n" + NEXT + b"\r\n" + NEXT
        assert await answers(address, data, cuts, 2) == [{"name": "next", "q": {}}] * 2


@pytest.mark.parametrize("rest", [b"", b"\r\n\r\n", b" HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01",
        b"get / HTTP/1.1",
        b"GET / HTTP/1.1\nHost: a",
        b"PUT /a\nH",
        b"GET /a\nHost: a",
        b"GET / HTTP/1.1\r\nHost: a\nX",
    ],
)
async def test_what_cannot_become_a_head_is_rejected_at_once(data: bytes, rest: bytes) -> None:
    async with sample_server(timeouts=NEVER) as address:
        assert await rejection(address, data + rest) == (400, MALFORMED)
