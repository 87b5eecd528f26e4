"""A Python that has other private names: TLS goes on without turns."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from httpd.server.handshakes import PRIVATE_NAMES, missing_names
from httpd.server.limits import Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.lane_server import (
    answered_by,
    connected,
    lane_server,
    read_response,
    request,
    until_alone,
)
from tests.support.httpd.self_signed import certificate, client_context
from tests.support.httpd.slow_client import slow_client


class WithoutNames(asyncio.BufferedProtocol):
    """Takes what asyncio's own class takes, and keeps nothing of it."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Do nothing."""


async def test_this_python_has_the_names() -> None:
    assert missing_names() == []


async def test_what_is_missing_is_named() -> None:
    assert missing_names(WithoutNames) == list(PRIVATE_NAMES)
    assert missing_names(asyncio.BufferedProtocol) == ["__init__"]


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Callable[[], ServerTls], ssl.SSLContext]:
    """Return the TLS of a listener on a Python with other names, and of its clients."""
    crt, key = certificate(tmp_path, "server", "localhost")
    files = TlsFiles(crt, key)
    return lambda: ServerTls(files, ssl_protocol=WithoutNames), client_context(crt)


@pytest.mark.slow
async def test_without_the_names_https_is_served_and_a_warning_says_so_once(
    tls: tuple[Callable[[], ServerTls], ssl.SSLContext], capsys: pytest.CaptureFixture[str]
) -> None:
    make, context = tls
    async with lane_server(tls=make()) as (_, address):
        for _ in range(2):
            async with connected(address, context) as (reader, writer):
                writer.write(request("now", body="1") + request("other", body="2"))
                assert await answered_by(reader) == ("lane", "1")
                assert await answered_by(reader) == ("handler", "2")
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "TLS handshakes do not take turns" in warnings[0]
    assert "_outgoing" in warnings[0]


@pytest.mark.slow
async def test_without_the_names_who_says_nothing_is_cut_off(
    tls: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, _ = tls
    async with lane_server(Timeouts(handshake=0.1), tls=make()) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        async with asyncio.timeout(30):  # asyncio's own limit is 60 seconds
            assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
async def test_without_the_names_who_takes_no_answer_is_cut_off(
    tls: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, context = tls
    async with (
        lane_server(Timeouts(stall=0.2), tls=make()) as (api, address),
        slow_client(address, context) as client,
    ):
        await client.send(request("now"))
        await client.take()
        sending = asyncio.create_task(client.send_until_cut_off(request("now", body="x" * 50_000)))
        await until_alone(api, address, context)
        await sending


@pytest.mark.slow
async def test_without_the_names_one_connection_too_many_is_told_so(
    tls: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, context = tls
    async with (
        lane_server(tls=make(), max_connections=1) as (api, address),
        connected(address, context) as (_, writer),
    ):
        writer.write(request("later"))
        await api.is_waiting.wait()
        async with connected(address, context) as (other, _):
            assert (await read_response(other))[0] == 503
            assert await other.read() == b""
