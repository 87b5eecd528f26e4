"""Many that want TLS at once: who is connected does not wait for them, nor they for the lost."""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry

from httpd.metrics import RequestMetrics
from httpd.server.handshakes import REFUSAL_DESCRIPTORS, HandshakeScheduler
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.httpd.sample_server import READER, sample_server
from tests.support.httpd.self_signed import certificate, client_context, health

CROWD = 200
ONE_A_PASS = Timeouts(handshake_budget=0, handshake=300)
ASK = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {READER}\r\n\r\n".encode()
HELLO_BACK = b"\x16"  # a TLS record of a handshake, not an alert
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ServerTls, ssl.SSLContext]:
    """Return a listener's TLS, and a context that trusts it."""
    crt, key = certificate(tmp_path, "server", "localhost")
    return ServerTls(TlsFiles(crt, key)), client_context(crt)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Yield a stack that closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


class EstablishedConnection:
    """A connection over TLS that is there already."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> str:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split()[0])
        return head + (await self.reader.readexactly(length)).decode()

    async def until(self, line: str) -> None:
        while f"\n{line}\n" not in await self.ask(ASK):
            pass


async def establish(port: int, context: ssl.SSLContext) -> EstablishedConnection:
    return EstablishedConnection(*await asyncio.open_connection("localhost", port, ssl=context))


def silent(port: int, sockets: ExitStack) -> socket.socket:
    return sockets.enter_context(closing(socket.create_connection(("127.0.0.1", port), 30)))


def hello(context: ssl.SSLContext) -> bytes:
    """Return the bytes of a client's hello."""
    said = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


@pytest.mark.slow
async def test_who_is_connected_is_answered_between_the_handshakes_of_a_crowd(
    tls: tuple[ServerTls, ssl.SSLContext], sockets: ExitStack
) -> None:
    server, context = tls
    async with sample_server(tls=server, max_connections=2 * CROWD, timeouts=ONE_A_PASS) as (
        _,
        port,
    ):
        client = await establish(port, context)
        crowd = [silent(port, sockets) for _ in range(CROWD)]
        await client.until(f"rollcall_http_tls_handshakes {CROWD}.0")

        hellos = [hello(context) for _ in crowd]
        for one, said in zip(crowd, hellos, strict=True):
            one.sendall(said[:100])
        assert (await client.ask(HEALTH)).startswith("HTTP/1.1 200")
        for one, said in zip(crowd, hellos, strict=True):
            one.sendall(said[100:])
        assert (await client.ask(HEALTH)).startswith("HTTP/1.1 200")
        served, _, _ = select.select(crowd, [], [], 0)

        assert len(served) < CROWD / 4
        for one in crowd:
            assert await asyncio.to_thread(one.recv, 1) == HELLO_BACK  # each has its turn
        client.writer.close()


@pytest.mark.slow
async def test_who_is_half_done_does_not_wait_for_the_crowd_that_came_after(
    tls: tuple[ServerTls, ssl.SSLContext], sockets: ExitStack
) -> None:
    server, context = tls
    async with sample_server(tls=server, max_connections=2 * CROWD, timeouts=ONE_A_PASS) as (
        _,
        port,
    ):
        said, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
        half = context.wrap_bio(heard, said, server_hostname="localhost")
        client = silent(port, sockets)
        with pytest.raises(ssl.SSLWantReadError):
            half.do_handshake()
        client.sendall(said.read())
        heard.write(await asyncio.to_thread(client.recv, 16_384))
        half.do_handshake()
        half.write(HEALTH)
        other = await establish(port, context)
        crowd = [silent(port, sockets) for _ in range(CROWD)]
        await other.until(f"rollcall_http_tls_handshakes {CROWD + 1}.0")

        client.sendall(said.read())
        for one in crowd:
            one.sendall(hello(context))
        await other.until(f"rollcall_http_tls_handshakes {CROWD}.0")
        served, _, _ = select.select(crowd, [], [], 0)

        assert len(served) < CROWD / 4
        heard.write(await asyncio.to_thread(client.recv, 16_384))
        assert half.read().startswith(b"HTTP/1.1 200")
        client.close()
        await other.until("rollcall_http_connections 1.0")
        other.writer.close()


@pytest.mark.slow
async def test_how_handshakes_end_is_counted(
    tls: tuple[ServerTls, ssl.SSLContext], sockets: ExitStack
) -> None:
    server, context = tls
    async with sample_server(tls=server) as (_, port):
        client = await establish(port, context)
        silent(port, sockets).sendall(b"GET / HTTP/1.1\r\nHost: no.tls.here\r\n\r\n")
        with silent(port, sockets) as leaver:
            await client.until("rollcall_http_tls_handshakes 1.0")
            leaver.sendall(hello(context)[:100])

        await client.until('rollcall_http_tls_handshakes_ended_total{outcome="failed"} 2.0')
        told = await client.ask(ASK)
        assert '\nrollcall_http_tls_handshakes_ended_total{outcome="done"} 1.0\n' in told
        assert "\nrollcall_http_tls_handshakes 0.0\n" in told
        client.writer.close()


@pytest.mark.slow
async def test_of_too_many_silent_clients_the_one_that_came_first_makes_room(
    tls: tuple[ServerTls, ssl.SSLContext],
) -> None:
    server, context = tls
    async with sample_server(tls=server, max_connections=2, timeouts=Timeouts(handshake=300)) as (
        _,
        port,
    ):
        client = await establish(port, context)
        with ExitStack() as crowd:
            first = silent(port, crowd)
            await client.until("rollcall_http_tls_handshakes 1.0")
            for _ in range(REFUSAL_DESCRIPTORS):
                silent(port, crowd)
            await client.until(f"rollcall_http_tls_handshakes {1 + REFUSAL_DESCRIPTORS}.0")

            assert await health(port, context) == 200
            assert await asyncio.to_thread(first.recv, 1) == b""
            told = await client.ask(ASK)
            assert '\nrollcall_http_connections_cut_off_total{reason="room"} 1.0\n' in told
        await client.until("rollcall_http_tls_handshakes 0.0")
        client.writer.close()


class Step:
    """A handshake that writes down when it had its step."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    def step(self) -> None:
        self._told.append(self._name)

    def abort(self) -> None:
        self._told.append(f"{self._name} was cut off")


async def test_half_done_ones_go_first_then_who_came_last_and_others_in_between() -> None:
    loop = asyncio.get_running_loop()
    limiter = ConnectionLimiter(
        max_connections=9,
        metrics=RequestMetrics(CollectorRegistry()),
        timeouts=ONE_A_PASS,
        time=loop.time,
    )
    handshakes = HandshakeScheduler(limiter, loop=loop, log=structlog.get_logger())
    told: list[str] = []
    first, gone, last, half = (Step(name, told) for name in ("first", "gone", "last", "half"))
    for each in (first, gone, last, half):
        assert handshakes.begin(each)
        handshakes.schedule_step(each, half_done=each is half)
    handshakes.end(gone, "failed")

    for _ in range(5):
        await asyncio.sleep(0)
        told.append("others")
    handshakes.end(last, "done")
    handshakes.close()

    others = ["others"] * 3
    assert told[:-2] == ["half", "others", "last", "others", "first", *others]
    assert set(told[-2:]) == {"half was cut off", "first was cut off"}
