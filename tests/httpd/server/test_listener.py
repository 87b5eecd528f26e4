import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from structlog.testing import LogCapture

from httpd.server.listener import ListenError
from tests.support.httpd.sample_server import WRITER, SampleApi, sample_server
from tests.support.httpd.slow_client import slow_client

LONG = 600.0  # the end has to wait for nothing for so long
ABSENT = "192.0.2.1"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_an_address_in_use_stops_the_start_with_its_name() -> None:
    async with sample_server() as (host, port):
        with pytest.raises(ListenError, match=f"cannot listen on {host}:{port}: Address already"):
            async with sample_server(port=port):
                pass


class NamesLoop(asyncio.SelectorEventLoop):
    """Takes any name for that of these addresses of IPv4."""

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self._hosts = hosts

    async def getaddrinfo(self, *address: Any, **_options: Any) -> Any:
        port = address[1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in self._hosts]


class FilesLoop(NamesLoop):
    """Lets nothing be opened once it has resolved a name."""

    async def getaddrinfo(self, *address: Any, **_options: Any) -> Any:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        return await super().getaddrinfo(*address)


@contextmanager
def restored_limit() -> Iterator[None]:
    """Restore the limit of open files at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def listen(host: str, log: LogCapture, *, shared: bool = False) -> None:
    async with sample_server(host=host, log_processors=[log], shared=shared):
        pass


@pytest.mark.parametrize("shared", [False, True])
def test_each_address_of_a_name_has_its_line_and_those_that_the_host_lacks_a_warning(
    *, shared: bool
) -> None:
    log = LogCapture()
    loop = NamesLoop(ABSENT, "127.0.0.1", "127.0.0.2")
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(listen("name.example", log, shared=shared))

    lines = [(each["log_level"], each["event"], each["host"]) for each in log.entries]
    assert sorted(lines) == [
        ("info", "listening", "127.0.0.1"),
        ("info", "listening", "127.0.0.2"),
        ("warning", "not listening", ABSENT),
    ]


def test_an_error_that_is_not_about_the_address_stops_the_start() -> None:
    loop = FilesLoop("127.0.0.1")
    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        restored_limit(),
        pytest.raises(ListenError, match=r"^cannot listen on a.example:0: Too many open files$"),
    ):
        runner.run(listen("a.example", LogCapture()))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("host", "reason"),
    [(ABSENT, "Cannot assign requested address"), ("::1%nowhere", "Name or service not known")],
)
async def test_an_address_that_the_host_lacks_stops_the_start(
    host: str, reason: str, *, shared: bool
) -> None:
    with pytest.raises(ListenError, match=f"^cannot listen on {host}:0: {reason}$"):
        await listen(host, LogCapture(), shared=shared)


@pytest.mark.slow
async def test_a_request_under_way_is_answered_before_the_end() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode())
        assert await slow_requests(host, port) == 1
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_body_that_comes_after_the_end_began_is_still_taken() -> None:
    async with sample_server() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 4\r\n\r\nab")
        assert await slow_requests(host, port) == 1
        rest = asyncio.create_task(_when_rejected(host, port, writer, b"cd"))
    await rest
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n4")
    writer.close()


@pytest.mark.parametrize("unfinished", [b"", HEALTH[:10]])
async def test_the_end_does_not_wait_for_who_asks_nothing(unfinished: bytes) -> None:
    async with sample_server(drain_seconds=LONG) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEALTH)
        assert (await reader.readuntil(b'ok"}')).startswith(b"HTTP/1.1 200")
        writer.write(unfinished)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.slow
async def test_an_answer_that_is_taken_slowly_is_sent_to_its_end() -> None:
    api = SampleApi()
    server = sample_server(api=api, drain_seconds=LONG)
    address = await server.__aenter__()
    async with slow_client(address, None) as client:
        await client.send(
            f"GET /sized/100000 HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n\r\n".encode()
        )
        await api.sized_begun.wait()
        ending = asyncio.create_task(server.__aexit__(None, None, None))
        taken = 0
        while piece := await client.take():
            taken += len(piece)
    assert taken > 100_000
    await ending


@pytest.mark.slow
async def test_the_end_waits_no_longer_than_it_was_reported_to() -> None:
    async with sample_server(drain_seconds=0.01) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /slow HTTP/1.1\r\nHost: a\r\nAuthorization: {WRITER}\r\n"
        writer.write(head.encode() + b"Content-Length: 4\r\n\r\nab")
        assert await slow_requests(host, port) == 1
    assert not (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def _when_rejected(host: str, port: int, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write the data as soon as the daemon takes no connection any more."""
    while True:
        try:
            _, probe = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            break
        probe.close()
    writer.write(data)


async def slow_requests(host: str, port: int) -> int:
    """Wait until the slow request has begun."""
    async with aiohttp.ClientSession(headers={"Authorization": WRITER}) as session:
        while True:
            async with session.get(f"http://{host}:{port}/slow/begun") as response:
                begun: int = await response.json()
            if begun:
                return begun
