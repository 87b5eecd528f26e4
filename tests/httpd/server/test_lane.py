"""The lane among other requests: a client cannot tell who answered."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.auth import Caller, fingerprint
from httpd.server.lane_connection import WHOLE_REQUEST_SECONDS
from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.lane_server import (
    LaneApi,
    Unavailable,
    answered_by,
    connected,
    lane_server,
    read_response,
    request,
    round_trip,
    until_alone,
)
from tests.support.httpd.loops import FastForwardLoop
from tests.support.httpd.sample_server import READER, WRITER
from tests.support.httpd.self_signed import certificate, client_context
from tests.support.httpd.slow_client import slow_client

PLAIN = request("now")
GET = PLAIN.replace(b"POST", b"GET")


async def test_a_plain_request_is_answered_by_the_lane_as_a_handler_would() -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        writer.write(request("now", body="hello"))
        status, headers, body = await read_response(reader)
        assert (status, body) == (200, b'{"by":"lane","body":"hello"}')
        writer.write(request("other", body="hello"))
        ordinary = (await read_response(reader))[1]
    for name in ("Date", "Content-Length"):
        assert headers.pop(name)[-3:] != ordinary.pop(name)[-3:] or name == "Date"
    assert headers == ordinary == {"Content-Type": "application/json", "Server": "rollcall"}


@pytest.mark.parametrize(
    "special",
    [
        GET,
        request("other"),
        request("now", "Connection: close"),
        request("now", "Connection: keep-alive, x"),
        request("now", "Proxy-Connection: close"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        request("now", "content-encoding: identity", body="x"),
        PLAIN.replace(b"now", b"%6eow"),
        PLAIN.replace(b"now", b"now?"),
        PLAIN.replace(b" /things", b" http://a/things"),
        request("now", "Connection: upgrade", "Upgrade: h2c"),
        request("now", "Upgrade: h2c"),
        request("now", "Expect: 100-continue"),
        request("now", "Accept: a", "Accept: b"),
        request("now", "X: \u00e9"),
        request("now", *[f"X-{number}: x" for number in range(124)]),
        request("now", f"X: {'x' * 8000}", f"Y: {'y' * 8000}"),
        request("now").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        b"\r\n" + PLAIN,
    ],
)
async def test_from_the_first_special_request_on_aiohttp_has_the_connection(special: bytes) -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        writer.write(PLAIN)
        assert await answered_by(reader) == ("lane", "")
        writer.write(special)
        assert (await answered_by(reader))[0] == "handler"
        if b"close" not in special and b"1.0" not in special:
            writer.write(PLAIN)
            assert await answered_by(reader) == ("handler", "")


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (request("now", key="another-key-0123456789"), 401),
        (PLAIN.replace(b"Authorization", b"X-Nothing"), 401),
        (PLAIN.replace(b"/now", b"/now/more"), 404),
        (PLAIN.replace(b"/now", b"/"), 404),
        (PLAIN.replace(b"POST", b"DELETE"), 405),
        (request("now", key=READER), 403),
        (PLAIN.replace(b"Length: 0", b"Length: 100001"), 413),
        (PLAIN.replace(b"Length: 0", b"Length: 0\r\nContent-Length: 0"), 400),
        (PLAIN.replace(b"Length: 0", b"Length: +1") + b"x", 400),
        (PLAIN.replace(b"Length: 0", b"Length: 1x") + b"x", 400),
        (PLAIN.replace(b"Length: 0", b"Length:"), 400),
        (PLAIN.replace(b"Host: a\r\n", b""), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\n folded"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nHost: b"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nBad Header: x"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nX: \0"), 400),
        (PLAIN.replace(b"Host: a", f"Host: a\r\nX: {'x' * 10_000}".encode()), 400),
        (PLAIN.replace(b"Host: a\r\n", b"Host: a\n"), 400),
        (b"GARBAGE\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("before", [b"", PLAIN])
async def test_what_is_refused_is_refused_behind_the_lane_alone(
    before: bytes, refused: bytes, status: int
) -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        writer.write(before + refused)
        if before:
            assert await answered_by(reader) == ("lane", "")
        assert (await read_response(reader))[0] == status


async def test_requests_of_the_lane_are_counted_with_those_of_the_handler() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        for name in ("now", "now", "other"):
            writer.write(request(name))
            await answered_by(reader)
        labels = {"route": "/things/{name}", "method": "POST", "status": "200"}
        count = "rollcall_http_request_duration_seconds_count"
        assert api.metrics.get_sample_value(count, labels) == 3


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 1)])
async def test_at_the_level_debug_each_request_of_the_lane_has_its_line_in_the_log(
    level: str, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lane_server(level=level) as (_, address), connected(address) as (reader, writer):
        writer.write(PLAIN)
        assert await answered_by(reader) == ("lane", "")
    told = [line for line in capsys.readouterr().out.splitlines() if "path=/things/now" in line]
    assert len(told) == lines
    assert all("caller=writer" in line and "remote=127.0.0.1" in line for line in told)


async def test_a_head_that_was_seen_before_is_not_looked_at_again_until_the_keys_change() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        for _ in range(2):
            writer.write(2 * PLAIN)
            for _ in range(2):
                assert await answered_by(reader) == ("lane", "")
        assert api.accepted == ["now writer"]

        api.keyring.replace([(fingerprint(WRITER), Caller("renamed", frozenset({"write"})))])
        writer.write(PLAIN)
        assert await answered_by(reader) == ("lane", "")
        assert api.accepted == ["now writer", "now renamed"]

        api.keyring.replace([])
        writer.write(PLAIN)
        assert (await read_response(reader))[0] == 401


async def test_however_many_different_heads_there_are_all_are_answered() -> None:
    async with (
        lane_server(max_connections=2) as (api, address),
        connected(address) as (reader, writer),
    ):
        for number in (1, 2, 3, 1, 2, 3):
            writer.write(request("now", f"X: {number}", body=str(number)))
            assert await answered_by(reader) == ("lane", str(number))
        assert len(api.accepted) > 3  # no more than two are remembered


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["now", "now", "later", "other"]), st.integers(1, 2000)),
        max_size=40,
    ),
    st.lists(st.integers(0, 4000)),
)
async def test_answers_come_in_order_however_the_requests_arrive(
    asked: list[tuple[str, int]], cuts: list[int]
) -> None:
    bodies = [f"{number}".ljust(size, "x") for number, (_, size) in enumerate(asked)]
    named = zip([name for name, _ in asked], bodies, strict=True)
    stream = b"".join([request(name, body=body) for name, body in named])
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        places = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
        for start, end in pairwise(places):
            writer.write(stream[start:end])
            await writer.drain()
            await asyncio.sleep(0)
        api.later.set_result(None)
        assert [(await answered_by(reader))[1] for _ in bodies] == bodies


async def test_an_answer_that_has_to_wait_holds_back_those_behind_it() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("later", body="1") + request("now", body="2"))
        await api.is_waiting.wait()
        writer.write(request("other", body="3"))
        await round_trip(address)
        api.later.set_result(None)
        assert await answered_by(reader) == ("lane", "1")
        assert await answered_by(reader) == ("lane", "2")
        assert await answered_by(reader) == ("handler", "3")


async def test_what_a_request_waited_for_in_vain_is_answered_and_the_request_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("later", body="1") + request("now", body="2"))
        await api.is_waiting.wait()
        api.later.set_exception(Unavailable("no room"))
        status, headers, body = await read_response(reader)
        assert (status, headers["Retry-After"], body) == (503, "7", b'{"message":"no room"}')
        assert await answered_by(reader) == ("lane", "2")
        assert api.handler_calls == 0
        labels = {"route": "/things/{name}", "method": "POST", "status": "503"}
        count = "rollcall_http_request_duration_seconds_count"
        assert api.metrics.get_sample_value(count, labels) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "status=503" in line]
    assert "no room" in line
    assert "path=/things/later" in line


async def test_a_defect_is_a_500_and_told_in_the_log_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("broken") + PLAIN)
        status, _, body = await read_response(reader)
        assert status == 500
        assert b"secret" not in body
        assert await answered_by(reader) == ("lane", "")
        assert api.handler_calls == 0
    assert "with the secret in it" in capsys.readouterr().out


async def test_an_answer_that_is_given_up_ends_its_connection_alone() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("later"))
        await api.is_waiting.wait()
        api.later.cancel()
        assert await reader.read() == b""
        await round_trip(address)


@pytest.mark.parametrize("behind", [1, 31, 32, 33, 1000])
async def test_however_many_come_while_an_answer_waits_all_are_answered(behind: int) -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("later"))
        await api.is_waiting.wait()
        bodies = [f"{number}".ljust(500, "x") for number in range(behind)]
        writer.write(b"".join([request("now", body=body) for body in bodies]))
        await round_trip(address)  # by then some of it has arrived
        api.later.set_result(None)
        assert await answered_by(reader) == ("lane", "")
        assert [await answered_by(reader) for _ in bodies] == [("lane", body) for body in bodies]


async def test_behind_an_answer_that_waits_only_so_much_is_read() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writer.write(request("later"))
        await api.is_waiting.wait()
        body = "x" * 90_000
        for _ in range(300):  # more than what kernels keep
            writer.write(request("now", body=body))
        last = 0
        while (left := writer.transport.get_write_buffer_size()) != last:
            last = left
            await round_trip(address)
        assert left > 1_000_000
        api.later.set_result(None)
        assert await answered_by(reader) == ("lane", "")
        for _ in range(300):
            assert await answered_by(reader) == ("lane", body)


@pytest.mark.parametrize("name", ["now", "other"])
async def test_a_body_that_came_late_costs_none_of_many_requests_behind_it(name: str) -> None:
    timeouts = Timeouts(idle=5)  # who would wait for ever is cut off then
    async with lane_server(timeouts) as (api, address), connected(address) as (reader, writer):
        writer.write(GET)
        assert await answered_by(reader) == ("handler", "")
        late = request("late", body="late")
        writer.write(late[:-2])
        await api.is_late.wait()
        behind = [str(number) for number in range(70)]
        writer.write(late[-2:] + b"".join([request(name, body=n) for n in behind]))
        assert [(await answered_by(reader))[1] for _ in ["late", *behind]] == ["late", *behind]


async def test_the_end_waits_for_an_answer_that_has_to_wait() -> None:
    async with connected_until_the_end() as (api, reader, ended):
        await asyncio.sleep(0)
        assert not ended.done()
        api.later.set_result(None)
        assert await answered_by(reader) == ("lane", "1")
        assert await reader.read() == b""
        await ended


@asynccontextmanager
async def connected_until_the_end() -> AsyncIterator[
    tuple[LaneApi, asyncio.StreamReader, asyncio.Task[bool | None]]
]:
    """Stop the server while an answer waits."""
    running = lane_server()
    api, address = await running.__aenter__()
    async with connected(address) as (reader, writer):
        writer.write(request("later", body="1"))
        await api.is_waiting.wait()
        yield api, reader, asyncio.create_task(running.__aexit__(None, None, None))


async def test_a_client_that_leaves_while_its_answer_waits_is_no_error() -> None:
    async with lane_server() as (api, address):
        async with connected(address) as (_, writer):
            writer.write(request("later", body="1"))
            await api.is_waiting.wait()
            writer.transport.abort()
        await until_alone(api, address)
        api.later.set_result(None)
        await round_trip(address)


async def test_a_client_that_leaves_right_after_its_requests_is_no_error() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["message"])
    )
    async with lane_server() as (_, address):
        before = asyncio.all_tasks()
        async with connected(address) as (reader, writer):
            writer.write(request("now") + request("other"))
            await answered_by(reader)
            left = asyncio.all_tasks() - before
            writer.write(request("now") + request("other"))
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, at_once)
            writer.transport.abort()
        if left:
            await asyncio.wait(left)
    del left
    gc.collect()  # a task tells of its error when nobody can ask for it any more
    assert told == []


Script = Callable[[FastForwardLoop], Coroutine[None, None, None]]


def run(script: Script) -> None:
    """Run a test on a loop whose time it moves."""
    loop = FastForwardLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(script(loop))


def test_a_connection_on_which_nothing_happens_is_closed() -> None:
    async def script(loop: FastForwardLoop) -> None:
        async with (
            lane_server() as (api, address),
            connected(address) as (once, first),
            connected(address) as (reader, writer),
        ):
            first.write(PLAIN)
            writer.write(PLAIN)
            assert await answered_by(once) == await answered_by(reader) == ("lane", "")
            await loop.advance(70)
            writer.write(PLAIN)
            assert await answered_by(reader) == ("lane", "")
            await loop.advance(10)
            assert await once.read() == b""
            writer.write(request("later"))
            await api.is_waiting.wait()
            await loop.advance(200)
            api.later.set_result(None)
            assert await answered_by(reader) == ("lane", "")
            await loop.advance(80)
            assert await reader.read() == b""

    run(script)


def test_a_head_that_does_not_end_is_cut_off_ten_seconds_after_its_first_byte() -> None:
    async def script(loop: FastForwardLoop) -> None:
        async with lane_server() as (_, address), connected(address) as (reader, writer):
            writer.write(PLAIN)
            assert await answered_by(reader) == ("lane", "")
            await loop.advance(20)  # between requests that limit does not count
            writer.write(PLAIN + PLAIN[:30])
            assert await answered_by(reader) == ("lane", "")
            await round_trip(address)
            await loop.advance(5)
            writer.write(PLAIN[30:35])
            await loop.advance(4.9)
            assert not reader.at_eof()
            await loop.advance(0.2)
            assert await reader.read() == b""

    run(script)


def test_a_request_that_is_not_whole_in_time_is_left_to_aiohttp() -> None:
    async def script(loop: FastForwardLoop) -> None:
        slow = request("now", body="slow")
        for places in ([10], [-2], [10, -2]):
            pieces = [slow[start:end] for start, end in pairwise([0, *places, len(slow)])]
            async with lane_server() as (_, address), connected(address) as (reader, writer):
                for piece in pieces[:-1]:
                    writer.write(piece)
                    await round_trip(address)
                    await loop.advance(WHOLE_REQUEST_SECONDS / 2 - 0.1)
                writer.write(pieces[-1])
                assert await answered_by(reader) == ("lane", "slow")
                writer.write(pieces[0])
                await round_trip(address)
                await loop.advance(WHOLE_REQUEST_SECONDS)
                writer.write(b"".join(pieces[1:]))
                assert await answered_by(reader) == ("handler", "slow")

    run(script)


def test_a_body_that_does_not_come_is_refused() -> None:
    async def script(loop: FastForwardLoop) -> None:
        async with lane_server() as (_, address), connected(address) as (reader, writer):
            writer.write(request("now", body="slow")[:-1])
            await round_trip(address)
            await loop.advance(WHOLE_REQUEST_SECONDS)
            await loop.advance(10)
            assert (await read_response(reader))[0] == 408

    run(script)


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_client_that_takes_no_answers_gets_no_more_and_is_cut_off(
    tmp_path: Path, *, over_tls: bool
) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    tls = ServerTls(TlsFiles(crt, key)) if over_tls else None
    context = client_context(crt) if over_tls else None
    async with (
        lane_server(Timeouts(stall=0.2), tls=tls) as (api, address),
        slow_client(address, context) as client,
    ):
        await client.send(PLAIN)
        await client.take()
        sending = asyncio.create_task(client.send_until_cut_off(request("now", body="x" * 50_000)))
        await until_alone(api, address, context)
        assert api.lane_bytes > 0
        await sending


async def test_over_tls_the_lane_answers_too(tmp_path: Path) -> None:
    crt, key = certificate(tmp_path, "server", "localhost")
    async with (
        lane_server(tls=ServerTls(TlsFiles(crt, key))) as (_, address),
        connected(address, client_context(crt)) as (reader, writer),
    ):
        writer.write(request("now", body="1") + request("other", body="2") + GET)
        assert await answered_by(reader) == ("lane", "1")
        assert await answered_by(reader) == ("handler", "2")
        assert await answered_by(reader) == ("handler", "")
