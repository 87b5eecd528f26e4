"""The port of an app is asked: what counts as an answer, and what does not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from agent.probe import HttpProbe
from tests.support.registry.fake_servers import HttpServer


@pytest.fixture
async def port(http_server: HttpServer) -> int:
    """Return the port of a server that answers /N with the status N, and /never not at all."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/never":
            await asyncio.Event().wait()
        return web.Response(status=int(request.path[1:]), headers={"Location": "/500"})

    found = urlsplit(await http_server(answer)).port
    assert found is not None
    return found


@pytest.fixture
async def probe() -> AsyncIterator[HttpProbe]:
    """Yield what asks."""
    probe = HttpProbe()
    yield probe
    await probe.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "failure"),
    [
        ("/200", None),
        ("/204?deep=%2F&x=1", None),
        ("/302", None),
        ("/404", "GET /404 was answered with 404"),
        ("/503", "GET /503 was answered with 503"),
        ("/never", "GET /never was not answered within 0.2 s"),
    ],
)
async def test_only_2xx_and_3xx_are_healthy(
    port: int, probe: HttpProbe, path: str, failure: str | None
) -> None:
    assert await probe.failure("0.0.0.0", port, path, seconds=0.2) == failure


@pytest.mark.slow
async def test_a_port_where_nobody_or_no_server_of_http_answers_is_a_failure(
    probe: HttpProbe,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert "connection failed" in str(await probe.failure("0.0.0.0", port, "/", seconds=5))

    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00" * 100)
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "connection failed" in str(await probe.failure("0.0.0.0", port, "/", seconds=5))
