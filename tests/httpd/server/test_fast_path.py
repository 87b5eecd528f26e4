"""Instant answers among others: a client cannot tell which is which."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from socket import SO_LINGER, SOL_SOCKET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.server.limits import Timeouts
from tests.support.httpd.fast_path_server import (
    FastPathApi,
    FastPathUnavailable,
    by,
    connected,
    fast_path_server,
    one,
    request,
)

CLOSE = "Connection: close"


async def test_what_the_instant_handler_knows_does_not_reach_the_ordinary_one() -> None:
    async with fast_path_server() as (_, address), connected(address) as (reader, writer):
        writer.write(request("/things/now", body="hello"))
        status, headers, body = await one(reader)
        assert (status, body) == (200, b'{"by":"instant","body":"hello"}')
        date = headers.pop("Date")
        assert date.endswith(" GMT")
        assert len(date) == 29
        assert headers == {
            "Content-Type": "application/json",
            "Content-Length": "31",
            "Server": "rollcall",
            "X-Name": "now",
        }


@pytest.mark.parametrize(
    "asked",
    [
        request("/things/other"),
        request("/things/now", CLOSE),
        request("/things/now").replace(b"HTTP/1.1", b"HTTP/1.0"),
        request("/things/now", "if-none-match: x"),
        request("/things/now", "content-encoding: identity", body="x"),
        request("/things/%6eow"),
        request("/things/now?"),
        request("/things/now", "Connection: upgrade", "Upgrade: h2c"),
        request("/things/now", "Expect: 100-continue", method="POST"),
        request("/things/now", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n",
        request("/things/broken"),
    ],
)
async def test_whatever_is_odd_takes_the_ordinary_way(asked: bytes) -> None:
    async with fast_path_server() as (_, address), connected(address) as (reader, writer):
        writer.write(asked)
        assert (await by(reader))[0] == "ordinary"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request("/things/now", key="another-key-0123456789"), 401),
        (request("/things/now").replace(b"Authorization", b"X-Nothing"), 401),
        (request("/things/now/more"), 404),
        (request("/things/"), 404),
        (request("/things/now", method="DELETE"), 405),
    ],
)
async def test_what_is_refused_is_refused_as_ever(asked: bytes, status: int) -> None:
    async with fast_path_server() as (_, address), connected(address) as (reader, writer):
        writer.write(asked)
        assert (await one(reader))[0] == status
        writer.write(request("/things/now"))
        assert await by(reader) == ("instant", "")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["now", "other", "later"]), st.integers(1, 2000)), max_size=40
    ),
    st.lists(st.integers(0, 4000)),
)
async def test_answers_come_in_order_however_the_requests_arrive(
    asked: list[tuple[str, int]], cuts: list[int]
) -> None:
    bodies = [f"{number}".ljust(size, "x") for number, (_, size) in enumerate(asked)]
    named = zip([name for name, _ in asked], bodies, strict=True)
    stream = b"".join([request(f"/things/{name}", body=body) for name, body in named])
    async with fast_path_server() as (known, address), connected(address) as (reader, writer):
        places = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
        for start, end in pairwise(places):
            writer.write(stream[start:end])
            await writer.drain()
            await asyncio.sleep(0)
        known.later.set_result(None)
        assert [(await by(reader))[1] for _ in bodies] == bodies


async def test_an_answer_that_has_to_wait_holds_back_those_behind_it() -> None:
    async with fast_path_server() as (known, address), connected(address) as (reader, writer):
        writer.write(request("/things/later", body="1") + request("/things/now", body="2"))
        await known.parked.wait()
        writer.write(request("/things/other", body="3"))
        async with connected(address) as (others, other):
            other.write(request("/things/now"))
            assert await by(others) == ("instant", "")
        known.later.set_result(None)
        assert await by(reader) == ("instant", "1")
        assert await by(reader) == ("instant", "2")
        assert await by(reader) == ("ordinary", "3")


async def test_what_an_answer_waited_for_in_vain_is_told_and_not_done_again() -> None:
    async with fast_path_server() as (known, address), connected(address) as (reader, writer):
        writer.write(request("/things/later", body="1") + request("/things/now", body="2"))
        await known.parked.wait()
        known.later.set_exception(FastPathUnavailable("no room"))
        status, headers, body = await one(reader)
        assert (status, headers["Retry-After"], body) == (503, "7", b'{"message":"no room"}')
        assert (await by(reader))[1] == "2"
        assert known.ordinary_calls == 2  # the first of the connection, and the last
        writer.write(request("/things/now"))
        assert await by(reader) == ("instant", "")


async def test_an_answer_that_is_given_up_ends_its_connection_alone() -> None:
    async with fast_path_server() as (known, address), connected(address) as (reader, writer):
        writer.write(request("/things/later"))
        await known.parked.wait()
        known.later.cancel()
        assert await reader.read() == b""
        async with connected(address) as (others, other):
            other.write(request("/things/now"))
            assert await by(others) == ("instant", "")


@pytest.mark.parametrize("behind", [30, 31, 32, 33, 70])
async def test_however_many_come_while_an_answer_waits_all_are_answered(behind: int) -> None:
    async with fast_path_server() as (known, address), connected(address) as (reader, writer):
        writer.write(request("/things/later"))
        await known.parked.wait()
        writer.write(b"".join([request("/things/now", body=str(n)) for n in range(behind)]))
        async with connected(address) as (others, other):  # by then all of it has arrived
            other.write(request("/things/now"))
            assert await by(others) == ("instant", "")
        known.later.set_result(None)
        assert await by(reader) == ("instant", "")
        assert [(await by(reader))[1] for _ in range(behind)] == [str(n) for n in range(behind)]


@pytest.mark.parametrize("name", ["now", "other"])
async def test_a_body_that_came_late_costs_none_of_many_requests_behind_it(name: str) -> None:
    timeouts = Timeouts(idle=5)  # who would wait for ever is cut off then
    async with (
        fast_path_server(timeouts) as (known, address),
        connected(address) as (reader, writer),
    ):
        late = request("/things/late", body="late")
        writer.write(late[:-2])
        await known.late.wait()
        behind = [str(number) for number in range(70)]
        writer.write(late[-2:] + b"".join([request(f"/things/{name}", body=n) for n in behind]))
        assert [(await by(reader))[1] for _ in ["late", *behind]] == ["late", *behind]


async def test_what_is_no_http_is_told_so_behind_an_instant_answer_too() -> None:
    async with fast_path_server() as (_, address), connected(address) as (reader, writer):
        writer.write(request("/things/now"))
        assert await by(reader) == ("instant", "")
        writer.write(b"GARBAGE\r\n\r\n")
        assert (await one(reader))[0] == 400
        assert await reader.read() == b""


async def test_the_end_waits_for_an_answer_that_has_to_wait() -> None:
    async with connected_until_the_end() as (known, reader, ended):
        await asyncio.sleep(0)
        assert not ended.done()
        known.later.set_result(None)
        assert await by(reader) == ("instant", "1")
        assert await reader.read() == b""
        await ended


@asynccontextmanager
async def connected_until_the_end() -> AsyncIterator[
    tuple[FastPathApi, asyncio.StreamReader, asyncio.Task[bool | None]]
]:
    """Let the server end while an answer waits."""
    running = fast_path_server()
    known, address = await running.__aenter__()
    async with connected(address) as (reader, writer):
        writer.write(request("/things/later", body="1"))
        await known.parked.wait()
        yield known, reader, asyncio.create_task(running.__aexit__(None, None, None))


async def test_a_client_that_leaves_while_its_answer_waits_leaves_nothing_behind() -> None:
    async with fast_path_server() as (known, address):
        before = asyncio.all_tasks()
        async with connected(address) as (_, writer):
            writer.write(request("/things/later", body="1"))
            await known.parked.wait()
            left = asyncio.all_tasks() - before
            writer.transport.abort()
        assert left
        await asyncio.wait(left)
        known.later.set_result(None)
        async with connected(address) as (reader, writer):
            writer.write(request("/things/now"))
            assert await by(reader) == ("instant", "")


async def test_a_client_that_leaves_right_after_its_requests_is_no_error() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["message"])
    )
    async with fast_path_server() as (_, address):
        before = asyncio.all_tasks()
        async with connected(address) as (_, writer):
            left = asyncio.all_tasks() - before
            writer.write(request("/things/now") + request("/things/other"))
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, at_once)
            writer.transport.abort()
        await asyncio.wait(left)
    del left
    gc.collect()  # a task tells of its error when nobody can ask for it any more
    assert told == []


async def test_an_idle_connection_is_closed_also_after_its_time_came_while_an_answer_waited() -> (
    None
):
    async with fast_path_server(Timeouts(idle=0.2)) as (known, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request("/things/ordinary"))
        assert await by(reader) == ("ordinary", "")
        writer.write(request("/things/later"))
        await asyncio.sleep(0.5)  # the time that is limited has to pass
        known.later.set_result(None)
        assert await by(reader) == ("instant", "")
        assert await reader.read() == b""
        writer.close()


async def test_headers_that_do_not_end_are_cut_off_also_after_an_instant_answer() -> None:
    async with (
        fast_path_server(Timeouts(header=0.1)) as (_, address),
        connected(address) as (reader, writer),
    ):
        writer.write(request("/things/now"))
        assert await by(reader) == ("instant", "")
        await asyncio.sleep(0.3)  # between requests that limit does not count
        writer.write(request("/things/now"))
        assert await by(reader) == ("instant", "")
        writer.write(b"GET /things/now HTTP/1.1\r\nX-Drip")
        assert await reader.read() == b""
