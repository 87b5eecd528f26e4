"""A tar that is sent to the engine: as fast as the engine takes it, and with the reason if not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from agent.engine.engine import Engine
from agent.engine.errors import (
    DiskFull,
    EngineRejected,
    EngineTimeout,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.http import EngineClient
from tests.support.agent.engines.fake_docker_api import ID, FakeDockerApi

UNPACK = f"PUT /containers/{ID}/archive"
CHUNK = bytes(1 << 18)
CHUNKS = 200


class Tar:
    """Pieces of a tar, of which ``taken`` were asked for."""

    def __init__(self) -> None:
        self.taken = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        for _ in range(CHUNKS):
            self.taken += 1
            yield CHUNK


async def take_all(request: web.Request) -> web.Response:
    await request.read()
    return web.Response()


async def take_nothing(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("this is cancelled")


@pytest.mark.slow
async def test_the_engine_gets_all_of_it_and_no_more_is_taken_from_the_sender_than_it_takes(
    fake: FakeDockerApi, engine: Engine
) -> None:
    tar, go_on, begun, received = Tar(), asyncio.Event(), asyncio.Event(), list[int]()

    async def take_later(request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        async for piece in request.content.iter_any():
            received.append(len(piece))
        return web.Response()

    fake.handle(UNPACK, take_later)
    unpacking = asyncio.create_task(engine.unpack(ID, tar.pieces()))
    await begun.wait()
    taken = -1
    while taken != tar.taken:  # until the buffers between them are full
        taken = tar.taken
        await asyncio.sleep(0.05)

    assert taken * len(CHUNK) < 4 << 20
    go_on.set()
    await unpacking
    assert (tar.taken, sum(received)) == (CHUNKS, CHUNKS * len(CHUNK))
    assert fake.queries[UNPACK] == {"path": "/"}


@pytest.mark.slow
async def test_an_engine_that_takes_nothing_for_too_long_is_given_up(fake: FakeDockerApi) -> None:
    fake.handle(UNPACK, take_nothing)
    client = EngineClient(socket_path=fake.path, timeout_seconds=30)

    with pytest.raises(EngineTimeout):
        await send(client, Tar().pieces(), idle_seconds=0.2)

    await client.close()


@pytest.mark.slow
async def test_a_slow_sender_is_not_the_engines_fault(fake: FakeDockerApi) -> None:
    fake.handle(UNPACK, take_all)
    client, idle = EngineClient(socket_path=fake.path, timeout_seconds=30), 0.3

    async def slow() -> AsyncIterator[bytes]:
        yield CHUNK
        await asyncio.sleep(3 * idle)
        yield CHUNK

    await send(client, slow(), idle_seconds=idle)

    await client.close()


async def test_what_the_sender_raises_is_raised(fake: FakeDockerApi, engine: Engine) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CHUNK
        raise KeyError("mine")

    fake.handle(UNPACK, take_all)

    with pytest.raises(KeyError, match="mine"):
        await engine.unpack(ID, broken())


@pytest.mark.parametrize(
    ("status", "words", "error"),
    [
        (500, "write /srv/x: no space left on device", DiskFull),
        (500, "unexpected EOF", EngineRejected),
    ],
)
async def test_the_engines_reason_is_reported_though_it_takes_no_more(
    fake: FakeDockerApi,
    engine: Engine,
    status: int,
    words: str,
    error: type[Exception],
) -> None:
    async def reject(request: web.Request) -> web.Response:
        await request.content.readany()
        return web.json_response({"message": words}, status=status)

    fake.handle(UNPACK, reject)

    with pytest.raises(error, match=words):
        await engine.unpack(ID, Tar().pieces())


async def test_an_engine_that_goes_away_is_reported(fake: FakeDockerApi, engine: Engine) -> None:
    async def go_away(request: web.Request) -> web.Response:
        await request.content.readany()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    fake.handle(UNPACK, go_away)

    with pytest.raises(EngineUnavailable):
        await engine.unpack(ID, Tar().pieces())


async def send(client: EngineClient, body: AsyncIterator[bytes], *, idle_seconds: float) -> None:
    """Send a body by a client of its own."""
    await client.send(
        "PUT",
        f"/containers/{ID}/archive",
        query={"path": "/"},
        body=body,
        idle_seconds=idle_seconds,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Could not find the file / in container {ID}", EngineRejected),
        (f"No such container: {ID}", ObjectNotFound),
    ],
)
async def test_what_a_tar_links_to_in_vain_is_not_taken_for_the_container(
    fake: FakeDockerApi, engine: Engine, text: str, expected: type[EngineRejected]
) -> None:
    async def reject(request: web.Request) -> web.Response:
        async for _ in request.content.iter_any():
            pass
        return web.json_response({"message": text}, status=404)

    fake.handle(UNPACK, reject)

    with pytest.raises(EngineRejected) as raised:
        await engine.unpack(ID, Tar().pieces())

    assert type(raised.value) is expected
    assert ("needs a file that is missing" in str(raised.value)) == (expected is EngineRejected)
