"""How a connection in the lane ends: the server stops, or its client leaves."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from socket import SO_LINGER, SOL_SOCKET

import pytest

from tests.support.httpd.lane_server import (
    Address,
    LaneApi,
    answered_by,
    connected,
    lane_server,
    read_response,
    request,
    round_trip,
    until_alone,
)
from tests.support.httpd.loop_errors import errors_told

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
    told = errors_told()
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
    assert told == []


async def test_no_request_is_left_to_aiohttp_when_the_answer_before_it_cannot_be_sent() -> None:
    told = errors_told()
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
    gc.collect()  # a task tells of its error when nobody can ask for it any more
    assert told == []


@pytest.mark.slow
async def test_a_client_that_leaves_right_after_its_requests_is_no_error() -> None:
    told = errors_told()
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
