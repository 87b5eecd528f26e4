"""Reads of the engine over its socket: connections, time limits, and interruptions."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from agent.engine.engine import Engine
from agent.engine.errors import (
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.http import EngineClient
from tests.support.agent.engines.fake_docker_api import INFO, FakeDockerApi

VOLUME = "GET /volumes/v"


async def test_a_connection_that_the_engine_dropped_is_made_anew(
    fake: FakeDockerApi, engine: Engine
) -> None:
    async def answer_and_hang_up(_: web.Request) -> web.Response:
        response = web.json_response(INFO)
        response.force_close()
        return response

    fake.handle("GET /info", answer_and_hang_up)

    for _ in range(3):
        assert (await engine.info()).cpus == 2

    assert fake.connections == 3


async def test_a_connection_that_the_engine_drops_at_the_next_question_is_made_anew(
    fake: FakeDockerApi, engine: Engine
) -> None:
    await engine.info()
    first = True

    async def drop_once(request: web.Request) -> web.Response:
        nonlocal first
        if first:
            first = False
            hang_up(request)
        return web.json_response(INFO)

    fake.handle("GET /info", drop_once)

    assert (await engine.info()).cpus == 2
    assert fake.connections == 2


async def test_a_rejection_keeps_the_connection(fake: FakeDockerApi, engine: Engine) -> None:
    fake.respond("GET /containers/x/json", (404, {"message": "No such container: x"}))

    with pytest.raises(ObjectNotFound, match="No such container"):
        await engine.inspect("x")

    assert (await engine.info()).cpus == 2
    assert fake.connections == 1


async def test_an_interrupted_answer_is_an_engine_that_is_away(
    fake: FakeDockerApi, engine: Engine
) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        hang_up(request)
        return response

    fake.handle("GET /info", break_off)

    with pytest.raises(EngineUnavailable, match="interrupted"):
        await engine.info()


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 OK\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n1\r\n",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_http_is_an_engine_that_is_away(
    fake: FakeDockerApi, engine: Engine, sent: bytes
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert isinstance(request.transport, asyncio.WriteTransport)
        request.transport.write(sent)
        hang_up(request)
        return web.Response()

    fake.handle("GET /info", answer)

    with pytest.raises(EngineUnavailable):
        await engine.info()


async def test_an_answer_without_end_is_given_up_with_its_connection(fake: FakeDockerApi) -> None:
    hung_up = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
        finally:
            hung_up.set()

    fake.handle("GET /info", answer)
    client = EngineClient(socket_path=fake.path, timeout_seconds=30, longest_answer=100_000)

    with pytest.raises(EngineError, match="more than 100000 bytes"):
        await client.get("/info", bytes)

    await hung_up.wait()
    await client.close()


@pytest.mark.slow
async def test_an_engine_that_does_not_answer_is_given_up_with_its_connection(
    fake: FakeDockerApi,
) -> None:
    engine, hung_up = Engine(url=fake.url, timeout_seconds=0.5), asyncio.Event()
    fake.handle(VOLUME, silence(hung_up=hung_up))

    with pytest.raises(EngineTimeout):
        await engine.volume_labels("v")

    await hung_up.wait()
    await engine.close()


async def test_a_caller_that_leaves_hangs_up(fake: FakeDockerApi, engine: Engine) -> None:
    asked, hung_up = asyncio.Event(), asyncio.Event()
    fake.handle(VOLUME, silence(asked=asked, hung_up=hung_up))
    asking = asyncio.ensure_future(engine.volume_labels("v"))
    await asked.wait()

    asking.cancel()

    await hung_up.wait()
    assert (await engine.info()).cpus == 2


async def test_closing_ends_what_is_asked_and_nothing_more_is(
    fake: FakeDockerApi, engine: Engine
) -> None:
    asked, hung_up = asyncio.Event(), asyncio.Event()
    fake.handle(VOLUME, silence(asked=asked, hung_up=hung_up))
    asking = asyncio.ensure_future(engine.volume_labels("v"))
    await asked.wait()

    await engine.close()

    with pytest.raises(EngineUnavailable):
        await asking
    await hung_up.wait()
    for call in (engine.info(), engine.start("x")):
        with pytest.raises(EngineUnavailable):
            await call


async def test_what_the_engine_packs_is_not_unpacked(fake: FakeDockerApi, engine: Engine) -> None:
    wanted: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        wanted.append(request.headers.get("Accept-Encoding"))
        return web.json_response(INFO)

    fake.handle("GET /info", answer)
    await engine.info()

    assert wanted == ["identity"]


def hang_up(request: web.Request) -> None:
    """Close the connection of a request."""
    assert request.transport is not None
    request.transport.close()


def silence(
    *, hung_up: asyncio.Event, asked: asyncio.Event | None = None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a handler that never answers, and says when the one who asked has left."""

    async def handler(_: web.Request) -> web.StreamResponse:
        if asked is not None:
            asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            hung_up.set()
        return web.Response()

    return handler
