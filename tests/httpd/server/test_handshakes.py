"""Handshakes take turns, also where many want TLS; who is rejected learns why."""

import asyncio
import datetime as dt
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from clients.errors import CertificateRejected
from clients.tls import ClientTls
from httpd.access_log import LINES_PER_SECOND
from httpd.metrics import RequestMetrics
from httpd.server.handshakes import (
    PRIVATE_NAMES,
    REJECTION_DESCRIPTORS,
    HandshakeScheduler,
    TlsProtocol,
    missing_names,
)
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.certificates import Authority, Pair, self_signed
from tests.support.httpd.lane_server import (
    answered_by,
    connected,
    lane_server,
    read_response,
    request,
    until_alone,
)
from tests.support.httpd.sample_server import READER, sample_server
from tests.support.httpd.slow_client import slow_client
from tests.support.httpd.tls import certificate, client_context, health
from tests.support.registry.client import failure_of

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
        reported = await client.ask(ASK)
        assert '\nrollcall_http_tls_handshakes_ended_total{outcome="done"} 1.0\n' in reported
        assert "\nrollcall_http_tls_handshakes 0.0\n" in reported
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
            for _ in range(REJECTION_DESCRIPTORS):
                silent(port, crowd)
            await client.until(f"rollcall_http_tls_handshakes {1 + REJECTION_DESCRIPTORS}.0")

            assert await health(port, context) == 200
            assert await asyncio.to_thread(first.recv, 1) == b""
            reported = await client.ask(ASK)
            assert '\nrollcall_http_connections_cut_off_total{reason="room"} 1.0\n' in reported
        await client.until("rollcall_http_tls_handshakes 0.0")
        client.writer.close()


class Step:
    """A handshake that writes down when it had its step."""

    def __init__(self, name: str, reported: list[str]) -> None:
        self._name = name
        self._reported = reported

    def step(self) -> None:
        self._reported.append(self._name)

    def abort(self) -> None:
        self._reported.append(f"{self._name} was cut off")


async def test_half_done_ones_go_first_then_who_came_last_and_others_in_between() -> None:
    loop = asyncio.get_running_loop()
    limiter = ConnectionLimiter(
        max_connections=9,
        metrics=RequestMetrics(CollectorRegistry()),
        timeouts=ONE_A_PASS,
        time=loop.time,
    )
    handshakes = HandshakeScheduler(limiter, loop=loop, log=structlog.get_logger())
    reported: list[str] = []
    first, gone, last, half = (
        cast("TlsProtocol", Step(name, reported)) for name in ("first", "gone", "last", "half")
    )
    for each in (first, gone, last, half):
        assert handshakes.begin(each)
        handshakes.schedule_step(each, half_done=each is half)
    handshakes.end(gone, "failed")

    for _ in range(5):
        await asyncio.sleep(0)
        reported.append("others")
    handshakes.end(last, "done")
    handshakes.close()

    others = ["others"] * 3
    assert reported[:-2] == ["half", "others", "last", "others", "first", *others]
    assert set(reported[-2:]) == {"half was cut off", "first was cut off"}


DAYS = dt.timedelta(days=3)
CASES = {
    "none": ("the client shows none", "requires a client certificate, and got none"),
    "expired": ("it has expired", "certificate has expired, by its clock; renew it"),
    "early": ("it is not valid yet, by the clock", "not valid yet by its clock"),
    "other CA": ("it is of an unknown CA", "of a CA that is not in its `client_ca`"),
    "own CA": ("it is of an unknown CA: itself", "of a CA that is not in its `client_ca`"),
}


def rejected(authority: Authority, folder: Path, case: str) -> Pair | None:
    """Return the certificate of a case."""
    if case == "own CA":
        return self_signed(folder, "web-1")
    if case == "other CA":
        return Authority(folder / "other", "another").issue("web-1")
    age = {"expired": DAYS, "early": -DAYS}.get(case)
    return None if age is None else authority.issue("web-1", age=age)


def server_tls(authority: Authority) -> ServerTls:
    pair = authority.issue("127.0.0.1")
    return ServerTls(TlsFiles(pair.certificate, pair.key, authority.ca))


def lines(log: LogCapture) -> list[tuple[str, str]]:
    events = [each for each in log.entries if each["event"] == "client certificate rejected"]
    return [(each["remote"], each["reason"]) for each in events]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("case", CASES)
async def test_the_client_and_the_log_tell_the_reasons_apart(
    tmp_path: Path, case: str, version: ssl.TLSVersion
) -> None:
    authority, log = Authority(tmp_path / "ca"), LogCapture()
    tls, pair = server_tls(authority), rejected(authority, tmp_path, case)
    tls.context.maximum_version = version
    shown = {} if pair is None else {"certificate": pair.certificate, "key": pair.key}
    async with sample_server(tls=tls, log_processors=[log]) as (_, port):
        client_tls = ClientTls(ca=authority.ca, **shown)
        failure = await failure_of(f"https://127.0.0.1:{port}", client_tls=client_tls)

    written, read = CASES[case]
    ((remote, reason),) = lines(log)
    assert remote == "127.0.0.1"
    assert reason.startswith(written)
    assert isinstance(failure, CertificateRejected)
    assert read in str(failure)


async def test_a_crowd_of_strangers_gets_few_lines() -> None:
    loop, log = asyncio.get_running_loop(), LogCapture()
    limiter = ConnectionLimiter(
        max_connections=9,
        metrics=RequestMetrics(CollectorRegistry()),
        timeouts=Timeouts(),
        time=loop.time,
    )
    logger = structlog.wrap_logger(structlog.PrintLogger(), processors=[log])
    handshakes = HandshakeScheduler(limiter, loop=loop, log=logger)
    for _ in range(10 * LINES_PER_SECOND):
        handshakes.certificate_rejected("192.0.2.1", "it has expired")
    # The moment may be the end of a second.
    assert LINES_PER_SECOND <= len(lines(log)) <= 2 * LINES_PER_SECOND


async def write_until_cut_off(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 1000)
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_client_that_never_hangs_up_is_cut_off(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = ssl.create_default_context(cafile=authority.ca)
    timeouts = Timeouts(handshake=0.5)
    async with sample_server(tls=server_tls(authority), timeouts=timeouts) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        writer.write(outgoing.read())
        while not outgoing.pending:  # the client's part of the handshake, without a certificate
            incoming.write(await reader.read(65536))
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
        writer.write(outgoing.read())
        incoming.write(await reader.read())  # why, and the end of what the server sends
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            client.read()
        with pytest.raises(ConnectionError):
            await write_until_cut_off(writer)


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
def nameless(tmp_path: Path) -> tuple[Callable[[], ServerTls], ssl.SSLContext]:
    """Return the TLS of a listener on a Python with other names, and of its clients."""
    crt, key = certificate(tmp_path, "server", "localhost")
    files = TlsFiles(crt, key)
    return lambda: ServerTls(files, ssl_protocol=WithoutNames), client_context(crt)


@pytest.mark.slow
async def test_without_the_names_https_is_served_and_a_warning_says_so_once(
    nameless: tuple[Callable[[], ServerTls], ssl.SSLContext], capsys: pytest.CaptureFixture[str]
) -> None:
    make, context = nameless
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
    nameless: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, _ = nameless
    async with lane_server(Timeouts(handshake=0.1), tls=make()) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        async with asyncio.timeout(30):  # asyncio's own limit is 60 seconds
            assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
async def test_without_the_names_who_takes_no_answer_is_cut_off(
    nameless: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, context = nameless
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
async def test_without_the_names_one_connection_too_many_is_reported_so(
    nameless: tuple[Callable[[], ServerTls], ssl.SSLContext],
) -> None:
    make, context = nameless
    async with (
        lane_server(tls=make(), max_connections=1) as (api, address),
        connected(address, context) as (_, writer),
    ):
        writer.write(request("later"))
        await api.is_waiting.wait()
        async with connected(address, context) as (other, _):
            assert (await read_response(other))[0] == 503
            assert await other.read() == b""
