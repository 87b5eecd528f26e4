"""Attacks on either daemon: memory stays bounded, and good clients are served meanwhile."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from tests.support.daemons import Daemon, Daemons
from tests.support.httpd.tls import TlsListener, connect
from tests.support.machine.memory import MEBIBYTE, resident
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

EACH = 100
CRLF = b"\r\n"


class Attacked(NamedTuple):
    """A daemon; a path that takes bodies, of so many bytes; a request that it answers with 200."""

    daemon: Daemon
    path: str
    max_body: int
    good: tuple[str, str, bytes]

    def serves(self) -> bool:
        """Return whether a good client is served."""
        method, path, body = self.good
        return self.daemon.ask(method, path, data=body).ok

    def head(self, *lines: str, method: str = "POST", path: str = "") -> bytes:
        """Return the head of a request."""
        first = f"{method} {path or self.path} HTTP/1.1"
        key = f"Authorization: {self.daemon.key}"
        return "\r\n".join([first, "Host: x", key, *lines, "", ""]).encode()


@pytest.fixture
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> TlsListener | None:
    """Return the TLS of the listener; None where a test does not ask for it."""
    is_wanted = getattr(request, "param", "plain") == "tls"
    return TlsListener(tmp_path / "tls") if is_wanted else None


@pytest.fixture(
    params=some_of(["registry", "agent"], "registry", reason="the same server in the agent")
)
def attacked(request: pytest.FixtureRequest, daemons: Daemons, tls: TlsListener | None) -> Attacked:
    """Return a registry, and an agent without an engine."""
    settings = tls.settings if tls else {}
    if request.param == "registry":
        registry = daemons.registry(**settings)
        heartbeat = ("POST", "/nodes/good", b'{"labels":[],"kv":{}}')
        return Attacked(registry, "/nodes/evil", MEBIBYTE, heartbeat)
    agent = daemons.agent(**settings)
    return Attacked(agent, "/v1/apps", 65536, ("GET", "/swagger.json", b""))


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.console_script
@pytest.mark.parametrize(
    "tls", some_of(["plain", "tls"], "tls", reason="memory, without TLS"), indirect=True
)
def test_many_slow_clients_take_little_memory_and_nobodys_turn(
    attacked: Attacked, sockets: ExitStack, tls: TlsListener | None
) -> None:
    daemon = attacked.daemon
    assert attacked.serves()
    before = resident(daemon)

    for _ in range(EACH):
        connect(daemon, sockets, tls=tls)
        connect(daemon, sockets, b"GET /nodes HTTP/1.1\r\nHost: x\r\nX-Slow: ", tls=tls)
        length = f"Content-Length: {attacked.max_body}"
        connect(daemon, sockets, attacked.head(length) + b'{"labels":', tls=tls)
        chunked = attacked.head("Transfer-Encoding: chunked")
        connect(daemon, sockets, chunked + b"ffff\r\n{", tls=tls)

    for _ in range(20):
        assert attacked.serves()
    assert resident(daemon) - before < 64 * MEBIBYTE


@pytest.mark.console_script
def test_large_and_packed_bodies_do_not_stay_in_memory(
    attacked: Attacked, sockets: ExitStack
) -> None:
    daemon, size = attacked.daemon, attacked.max_body
    assert attacked.serves()
    before = resident(daemon)
    deep = b'{"labels":' + b"[" * (size - 100)
    wide = b'{"labels":[' + b",".join(b'"%d"' % n for n in range(size // 10)) + b'],"kv":{}}'
    double = b'{"labels":[],"kv":{' + b'"x":"",' * (size // 7 - 100) + b'"x":""}}'

    for body, status in [(deep, 400), (wide, 400), (double, 400), (b"x" * 2 * size, 413)] * 5:
        answer = daemon.ask("POST", attacked.path, data=body)
        assert answer.status_code == status
        assert len(answer.content) < 600
    packed = daemon.ask(
        "POST", attacked.path, data=b"\x1f\x8b" + b"x" * 1000, headers={"Content-Encoding": "gzip"}
    )
    assert packed.status_code == 415
    endless = connect(daemon, sockets, attacked.head("Transfer-Encoding: chunked"))
    with suppress(OSError):
        for _ in range(32):
            endless.sendall(b"10000\r\n" + b"x" * 65536 + CRLF)
    assert b" 413 " in endless.recv(65536).partition(CRLF)[0]
    assert resident(daemon) - before < 64 * MEBIBYTE
    assert daemon.ask("GET", "/nodes/evil").status_code == 404


def test_a_thousand_requests_at_once_on_one_connection_are_all_answered(
    attacked: Attacked, sockets: ExitStack
) -> None:
    method, path, body = attacked.good
    one = attacked.head(f"Content-Length: {len(body)}", method=method, path=path) + body
    client = connect(attacked.daemon, sockets)
    sending = Thread(target=client.sendall, args=(one * 1000,))
    sending.start()

    answers, rest = 0, b""
    while answers < 1000:
        chunk = client.recv(MEBIBYTE)
        assert chunk, "the connection ended early"
        rest += chunk
        answers += rest.count(b"HTTP/1.1 200 OK")
        rest = rest[-len(b"HTTP/1.1 200 O") :]
    sending.join()

    assert attacked.serves()


GET = b"GET /nodes HTTP/1.1\r\nHost: x\r\n"
NO_HTTP = [
    GET + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    GET + b"Content-Length: +4\r\n\r\n",
    GET + b"Transfer-Encoding: weird\r\n\r\n",
    GET + b" folded: y\r\n\r\n",
    GET + b"X: \x1b[31m\r\n\r\n",
    b"GET /nodes HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /nodes HTTP/9.9\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 100 + b"\r\n\r\n",
]


def test_what_is_no_http_is_rejected_with_a_message_and_no_traceback(
    attacked: Attacked, sockets: ExitStack
) -> None:
    for request in NO_HTTP:
        client = connect(attacked.daemon, sockets, request)
        received = b""
        while chunk := client.recv(65536):
            received += chunk

        assert b" 400 " in received.partition(CRLF)[0], request
        assert b'{"message":' in received
    assert attacked.serves()
    assert "Traceback" not in attacked.daemon.log()
