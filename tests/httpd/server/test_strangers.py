"""Clients that show no valid key: how long they may stay between requests."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.lane_server import connected, lane_server, read_response
from tests.support.httpd.loops import FastForwardLoop
from tests.support.httpd.sample_server import WRITER, sample_server
from tests.support.httpd.tls import certificate, client_context

Address = tuple[str, int]
Script = Callable[[FastForwardLoop, Address, ssl.SSLContext | None], Coroutine[None, None, None]]


@pytest.fixture(params=["plain", "tls"])
def halves(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[ServerTls | None, ssl.SSLContext | None]:
    """Return the server's and the client's TLS, or none."""
    if request.param == "plain":
        return None, None
    crt, key = certificate(tmp_path, "server", "localhost")
    return ServerTls(TlsFiles(crt, key)), client_context(crt)


@pytest.fixture(params=["lane", "no lane"])
def run(
    request: pytest.FixtureRequest, halves: tuple[ServerTls | None, ssl.SSLContext | None]
) -> Callable[[Script], None]:
    """Return what runs a test beside a server, on a loop whose time it moves."""
    tls, context = halves

    async def with_server(script: Script, loop: FastForwardLoop) -> None:
        if request.param == "lane":
            async with lane_server(tls=tls) as (_, address):
                await script(loop, address, context)
        else:
            async with sample_server(tls=tls) as address:
                await script(loop, address, context)

    def run_script(script: Script) -> None:
        loop = FastForwardLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(with_server(script, loop))

    return run_script


def asking(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode()


async def status_of(reader: asyncio.StreamReader) -> int:
    status, _, _ = await read_response(reader)
    return status


@pytest.mark.slow
@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/things/a", 401)])
def test_a_client_without_a_key_has_ten_seconds_from_one_request_to_the_next(
    run: Callable[[Script], None], path: str, status: int
) -> None:
    async def script(loop: FastForwardLoop, address: Address, context: Any) -> None:
        async with connected(address, context) as (reader, writer):
            for _ in range(3):  # as a health check does, on a connection that is kept
                writer.write(asking(path))
                assert await status_of(reader) == status
                await loop.advance(9)
            assert not reader.at_eof()
            await loop.advance(2)
            assert await reader.read() == b""

    run(script)


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_a_client_that_has_shown_a_key_may_be_idle_for_longer(
    run: Callable[[Script], None], path: str
) -> None:
    async def script(loop: FastForwardLoop, address: Address, context: Any) -> None:
        async with connected(address, context) as (reader, writer):
            writer.write(asking("/healthz"))
            assert await status_of(reader) == 200
            for _ in range(2):
                writer.write(asking(path, f"Authorization: {WRITER}"))
                assert await status_of(reader) == 200
                await loop.advance(70)
            assert not reader.at_eof()

    run(script)


def test_a_head_that_begins_late_has_no_more_time_without_a_key(
    run: Callable[[Script], None],
) -> None:
    async def script(loop: FastForwardLoop, address: Address, context: Any) -> None:
        async with connected(address, context) as (reader, writer):
            writer.write(asking("/healthz"))
            assert await status_of(reader) == 200
            await loop.advance(9)
            writer.write(asking("/healthz")[:20])
            await loop.advance(2)
            assert await reader.read() == b""

    run(script)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_request_in_time_is_answered_by_a_server_that_stood_still(
    run: Callable[[Script], None], *, is_read: bool
) -> None:
    async def script(loop: FastForwardLoop, address: Address, context: Any) -> None:
        async with connected(address, context) as (reader, writer):
            writer.write(asking("/healthz"))
            assert await status_of(reader) == 200
            if is_read:  # in the iteration of the loop in which the time is over
                writer.write(asking("/healthz"))
            else:  # it arrives while other callbacks of that iteration run
                loop.call_soon(writer.write, asking("/healthz"))
            await loop.advance(11)
            assert await status_of(reader) == 200

    run(script)
