"""How a connection in the lane ends: the server stops, its client leaves or takes too long."""

import asyncio
import errno
import gc
import os
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest
import structlog

from httpd.metrics import RequestMetrics
from httpd.middleware import MIDDLEWARE
from httpd.server.connection import WHOLE_REQUEST_SECONDS, HttpConnection, Responders
from httpd.server.lane import Lane
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.lane_server import (
    Address,
    LaneApi,
    answered_by,
    connected,
    lane_app,
    lane_server,
    read_response,
    request,
    round_trip,
    until_alone,
)
from tests.support.httpd.loops import FastForwardLoop, errors_reported
from tests.support.httpd.slow_client import slow_client
from tests.support.httpd.tls import certificate, client_context

PLAIN = request("now")


class StoppableServer:
    """A server with a lane, which a test stops while a client is connected."""

    def __init__(self, api: LaneApi, address: Address, stack: AsyncExitStack) -> None:
        self.api = api
        self.address = address
        self._stack = stack

    async def stop(self) -> asyncio.Task[None]:
        """Begin to stop; return once nobody can connect any more, with the task that goes on."""
        stopping = asyncio.create_task(self._stack.aclose())
        with suppress(ConnectionError):
            while True:
                _, writer = await asyncio.open_connection(*self.address)
                writer.close()
        return stopping


@asynccontextmanager
async def stoppable_server(*, drain_seconds: float = 600.0) -> AsyncIterator[StoppableServer]:
    """Run it until it is stopped."""
    async with AsyncExitStack() as stack:
        running = lane_server(drain_seconds=drain_seconds)
        api, address = await stack.enter_async_context(running)
        yield StoppableServer(api, address, stack)


async def test_the_end_waits_for_an_answer_that_has_to_wait() -> None:
    async with stoppable_server() as server, connected(server.address) as (reader, writer):
        writer.write(request("later", body="1"))
        await server.api.is_waiting.wait()
        stopping = await server.stop()
        assert not stopping.done()
        server.api.later.set_result(None)
        assert await answered_by(reader) == ("lane", "1")
        assert await reader.read() == b""
        await stopping


async def test_an_answer_that_waits_when_the_time_to_drain_is_over_is_not_sent() -> None:
    async with (
        stoppable_server(drain_seconds=0) as server,
        connected(server.address) as (reader, writer),
    ):
        writer.write(request("later", body="1"))
        await server.api.is_waiting.wait()
        await (await server.stop())
        server.api.later.set_result(None)
        with suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.slow
async def test_once_it_has_stopped_no_request_is_taken_of_a_client_that_was_slow_to_read() -> None:
    async with stoppable_server() as server, connected(server.address) as (reader, writer):
        writer.write(request("large"))
        await server.api.has_answered_large.wait()
        stopping = await server.stop()
        assert not stopping.done()
        status, _, body = await read_response(reader)
        assert (status, len(body)) == (200, server.api.large_bytes)
        await stopping
        before = server.api.lane_bytes
        with suppress(ConnectionError):
            writer.write(request("now", body="late"))
            assert await reader.readline() == b""
        assert server.api.lane_bytes == before


async def test_a_body_that_has_begun_when_the_server_stops_may_arrive_and_is_answered() -> None:
    late = request("now", body="late")
    async with stoppable_server() as server, connected(server.address) as (reader, writer):
        writer.write(PLAIN + late[:-2])
        assert await answered_by(reader) == ("lane", "")
        stopping = await server.stop()
        writer.write(late[-2:])
        assert await answered_by(reader) == ("handler", "late")
        assert await reader.read() == b""
        await stopping


def count(api: LaneApi) -> float:
    """Return how many requests were counted."""
    labels = {"route": "/things/{name}", "method": "POST", "status": "200"}
    name = "rollcall_http_request_duration_seconds_count"
    return api.metrics.get_sample_value(name, labels) or 0


async def test_a_client_that_leaves_while_its_answer_waits_is_no_error_and_is_counted() -> None:
    reported = errors_reported()
    async with lane_server() as (api, address):
        async with connected(address) as (_, writer):
            writer.write(request("later", body="1"))
            await api.is_waiting.wait()
            writer.transport.abort()
        await until_alone(api, address)
        before = count(api)
        api.later.set_result(None)
        await round_trip(address)
        assert count(api) == before + 2
    assert reported == []


async def test_no_request_is_left_to_aiohttp_when_the_answer_before_it_cannot_be_sent() -> None:
    reported = errors_reported()
    async with lane_server() as (api, address):
        async with connected(address) as (reader, writer):
            writer.write(PLAIN)
            await answered_by(reader)
            writer.write(PLAIN + request("other"))
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, at_once)
            writer.transport.abort()
        await until_alone(api, address)
        assert (api.accepted.count("other writer"), api.handler_calls) == (1, 0)
    gc.collect()  # a task reports its error when nobody can ask for it any more
    assert reported == []


@pytest.mark.slow
async def test_a_client_that_leaves_right_after_its_requests_is_no_error() -> None:
    reported = errors_reported()
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
    gc.collect()  # a task reports its error when nobody can ask for it any more
    assert reported == []


PLAIN = request("now")
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


class ClosingTransport(asyncio.Transport):
    """A transport whose client does not let it end."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def is_closing(self) -> bool:
        return self.closed > 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no limits."""


class LeftTransport(ClosingTransport):
    """A transport whose client has left, which nobody has noticed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


def connection(loop: asyncio.AbstractEventLoop) -> tuple[ConnectionLimiter, HttpConnection]:
    """Return a connection of a server with a lane, and what limits it."""
    api = LaneApi()
    metrics = RequestMetrics(api.metrics)
    app = lane_app(api, metrics, structlog.get_logger())
    lane = Lane(api.endpoint(), middleware=app[MIDDLEWARE], max_headers=1)
    limiter = ConnectionLimiter(
        max_connections=1, metrics=metrics, timeouts=Timeouts(idle=75), time=loop.time
    )
    responders = Responders(
        daemon="sample", make_handler=lambda: pytest.fail("for the lane alone"), lane=lane
    )
    return limiter, HttpConnection(limiter, responders, loop=loop)


def test_a_connection_that_is_closing_is_not_closed_again_when_its_time_is_over() -> None:
    # A TLS transport that is closed twice can no longer be used.
    async def script(loop: FastForwardLoop) -> None:
        limiter, made = connection(loop)
        transport = ClosingTransport()
        made.connection_made(transport)
        await limiter.stop()
        assert transport.closed == 1
        await loop.advance(80)
        assert transport.closed == 1

    run(script)


async def test_a_client_that_leaves_while_it_is_rejected_is_no_error() -> None:
    _, made = connection(asyncio.get_running_loop())
    transport = LeftTransport()
    made.connection_made(transport)
    sent = b"GARBAGE\r\n\r\n"
    made.get_buffer(-1)[: len(sent)] = sent
    made.buffer_updated(len(sent))
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    made.connection_lost(None)


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


@pytest.mark.slow
def test_a_request_whose_body_does_not_come_in_time_is_left_to_aiohttp() -> None:
    async def script(loop: FastForwardLoop) -> None:
        slow = request("now", body="slow")
        for places in ([10], [-2], [10, -2]):
            pieces = [slow[start:end] for start, end in pairwise([0, *places, len(slow)])]
            async with lane_server() as (_, address), connected(address) as (reader, writer):
                for piece in pieces[:-1]:
                    writer.write(piece)
                    await round_trip(address)
                    await loop.advance(WHOLE_REQUEST_SECONDS - 0.1)
                writer.write(pieces[-1])
                assert await answered_by(reader) == ("lane", "slow")
                writer.write(slow[:-2])
                await round_trip(address)
                await loop.advance(WHOLE_REQUEST_SECONDS)
                writer.write(slow[-2:])
                assert await answered_by(reader) == ("handler", "slow")

    run(script)


def test_a_partial_request_is_not_left_to_aiohttp_as_its_connection_is_cut_off() -> None:
    async def script(loop: FastForwardLoop) -> None:
        reported = errors_reported()
        just_before = Timeouts(header=WHOLE_REQUEST_SECONDS - 0.1)
        async with lane_server(just_before) as (api, address):
            async with connected(address) as (reader, writer):
                writer.write(PLAIN[:30])
                await round_trip(address)
                # Both times are over in one iteration of the loop, first that which cuts it off.
                await loop.advance(10)
                assert await reader.read() == b""
            await until_alone(api, address)
        gc.collect()  # a task reports its error when nobody can ask for it any more
        assert reported == []

    run(script)


def test_a_body_that_does_not_come_is_rejected() -> None:
    async def script(loop: FastForwardLoop) -> None:
        async with lane_server() as (_, address), connected(address) as (reader, writer):
            writer.write(request("now", body="slow")[:-1])
            await round_trip(address)
            await loop.advance(WHOLE_REQUEST_SECONDS)
            await loop.advance(10)
            assert (await read_response(reader))[0] == 408

    run(script)


@pytest.mark.slow
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
