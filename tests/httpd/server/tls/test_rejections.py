"""A client whose certificate is rejected learns why, and so does the log."""

import asyncio
import datetime as dt
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from clients.errors import CertificateRefused
from clients.tls import ClientTls
from httpd.access_log import LINES_PER_SECOND
from httpd.metrics import RequestMetrics
from httpd.server.handshakes import HandshakeScheduler
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.tls import ServerTls, TlsFiles
from tests.support.certificates import Authority, Pair, self_signed
from tests.support.httpd.sample_server import sample_server
from tests.support.registry.client import failure_of

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
    assert isinstance(failure, CertificateRefused)
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
