"""The lane among other requests: a client cannot tell who answered."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpd.auth import Caller
from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.examples import share_of
from tests.support.httpd.lane_server import (
    Unavailable,
    answered_by,
    connected,
    lane_server,
    read_response,
    request,
    round_trip,
)
from tests.support.httpd.sample_server import READER, WRITER
from tests.support.httpd.tls import certificate, client_context

PLAIN = request("now")
GET = PLAIN.replace(b"POST", b"GET")


async def test_a_plain_request_is_answered_by_the_lane_as_a_handler_would() -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        writer.write(request("now", body="hello"))
        status, headers, body = await read_response(reader)
        assert (status, body) == (200, b'{"by":"lane","body":"hello"}')
        writer.write(request("other", body="hello"))
        ordinary = (await read_response(reader))[1]
    assert (headers.pop("Content-Length"), ordinary.pop("Content-Length")) == ("28", "31")
    headers.pop("Date")
    ordinary.pop("Date")
    assert headers == ordinary
    assert headers == {
        "Content-Type": "application/json",
        "Server": "rollcall",
        "Rollcall": "sample",
    }


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
        request("now").replace(b"Length: 0", b"Length: 00000000000"),
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
    ("rejected", "status"),
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
        (PLAIN.replace(b"Length: 0", b"Length: %b" % (b"0" * 5000)), 200),
        (PLAIN.replace(b"Length: 0", b"Length: %b" % (b"9" * 5000)), 400),
        (PLAIN.replace(b"Host: a\r\n", b""), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\n folded"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nHost: b"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nBad Header: x"), 400),
        (PLAIN.replace(b"Host: a", b"Host: a\r\nX: \0"), 400),
        (request("now", f"X: {'x' * 10_000}"), 200),
        (request("now", f"X: {'x' * 16_384}"), 431),
        (request("now", *[f"X-{number}: x" for number in range(128)]), 431),
        (PLAIN.replace(b"/now", b"/now" + b"w" * 16_384), 414),
        (PLAIN.replace(b"Host: a\r\n", b"Host: a\n"), 400),
        (b"GARBAGE\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("before", [b"", PLAIN])
async def test_what_is_rejected_is_rejected_behind_the_lane_alone(
    before: bytes, rejected: bytes, status: int
) -> None:
    async with lane_server() as (_, address), connected(address) as (reader, writer):
        writer.write(before + rejected)
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
    reported = [line for line in capsys.readouterr().out.splitlines() if "path=/things/now" in line]
    assert len(reported) == lines
    assert all("caller=writer" in line and "remote=127.0.0.1" in line for line in reported)


class Lookups:
    """Finds the caller of each key, and notes that it was asked for."""

    def __init__(self, caller: str) -> None:
        self._caller = Caller(caller, frozenset({"write"}))
        self.keys: list[str] = []

    def __call__(self, key: str) -> Caller:
        self.keys.append(key)
        return self._caller


async def test_headers_that_were_seen_before_are_not_parsed_again_until_the_keys_change() -> None:
    async with lane_server() as (api, address), connected(address) as (reader, writer):
        writers, renamed = Lookups("writer"), Lookups("renamed")
        api.later.set_result(None)
        api.keyring.replace([], derived=writers)
        for name in ("now", "later", "now"):
            writer.write(2 * request(name))
            for _ in range(2):
                assert await answered_by(reader) == ("lane", "")
        assert writers.keys == [WRITER]
        assert api.accepted == [
            f"{n} writer" for n in ("now", "now", "later", "later", "now", "now")
        ]

        api.keyring.replace([], derived=renamed)
        writer.write(PLAIN)
        assert await answered_by(reader) == ("lane", "")
        assert renamed.keys == [WRITER]
        assert api.accepted[-1] == "now renamed"

        api.keyring.replace([])
        writer.write(PLAIN)
        assert (await read_response(reader))[0] == 401


async def test_however_many_different_headers_there_are_all_are_answered() -> None:
    async with (
        lane_server(max_connections=2) as (api, address),
        connected(address) as (reader, writer),
    ):
        writers = Lookups("writer")
        api.keyring.replace([], derived=writers)
        for number in (1, 2, 3, 1, 2, 3):
            writer.write(request("now", f"X: {number}", body=str(number)))
            assert await answered_by(reader) == ("lane", str(number))
        assert len(writers.keys) > 3  # no more than two are remembered


@pytest.mark.slow
@settings(max_examples=share_of(60))
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


@pytest.mark.slow
async def test_a_defect_is_a_500_and_reported_in_the_log_alone(
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
