"""Clients that mean harm: memory stays bounded, and good clients are served meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, Daemons

pytestmark = pytest.mark.real

EACH = 100
MEBIBYTE = 1024 * 1024
CRLF = b"\r\n"


@pytest.fixture
def registry(daemons: Daemons) -> Daemon:
    return daemons.registry(log={"level": "info"})


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


def resident(registry: Daemon) -> int:
    """Return the process's memory in bytes."""
    pages = Path(f"/proc/{registry.pid}/statm").read_text("ascii").split()[1]
    return int(pages) * 4096


def connect(registry: Daemon, sockets: ExitStack, sent: bytes) -> socket.socket:
    """Open a connection and send something."""
    port = int(registry.base_url.rpartition(":")[2])
    client = sockets.enter_context(closing(socket.create_connection(("127.0.0.1", port), 10)))
    client.sendall(sent)
    return client


def head(registry: Daemon, *lines: str) -> bytes:
    """Return a POST's head."""
    first = ["POST /nodes/evil HTTP/1.1", "Host: x", f"Authorization: {registry.key}"]
    return "\r\n".join([*first, *lines, "", ""]).encode()


def test_many_slow_clients_take_little_memory_and_nobodys_turn(
    registry: Daemon, sockets: ExitStack
) -> None:
    assert registry.ask("POST", "/nodes/good", json={"labels": [], "kv": {}}).ok
    before = resident(registry)

    for _ in range(EACH):
        connect(registry, sockets, b"")
        connect(registry, sockets, b"GET /nodes HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        connect(registry, sockets, head(registry, f"Content-Length: {MEBIBYTE}") + b'{"labels":')
        connect(registry, sockets, head(registry, "Transfer-Encoding: chunked") + b"ffff\r\n{")

    for _ in range(20):
        assert registry.ask("POST", "/nodes/good", json={"labels": [], "kv": {}}).ok
        assert registry.ask("GET", "/nodes").json()[0]["hostname"] == "good"
    assert resident(registry) - before < 64 * MEBIBYTE


def test_large_and_packed_bodies_do_not_stay_in_memory(
    registry: Daemon, sockets: ExitStack
) -> None:
    registry.ask("POST", "/nodes/good", json={"labels": [], "kv": {}})
    before = resident(registry)
    deep = b'{"labels":' + b"[" * (MEBIBYTE - 100)
    wide = b'{"labels":[' + b",".join(b'"%d"' % n for n in range(100_000)) + b'],"kv":{}}'
    double = b'{"labels":[],"kv":{' + b'"x":"",' * (MEBIBYTE // 7 - 100) + b'"x":""}}'

    for body, status in [(deep, 400), (wide, 400), (double, 400), (b"x" * 2 * MEBIBYTE, 413)] * 5:
        answer = registry.ask("POST", "/nodes/evil", data=body)
        assert answer.status_code == status
        assert len(answer.content) < 400
    packed = registry.ask(
        "POST", "/nodes/evil", data=b"\x1f\x8b" + b"x" * 1000, headers={"Content-Encoding": "gzip"}
    )
    assert packed.status_code == 415
    endless = connect(registry, sockets, head(registry, "Transfer-Encoding: chunked"))
    with suppress(OSError):
        for _ in range(32):
            endless.sendall(b"10000\r\n" + b"x" * 65536 + CRLF)
    assert b" 413 " in endless.recv(65536).partition(CRLF)[0]
    assert resident(registry) - before < 64 * MEBIBYTE
    assert [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == ["good"]


def test_a_thousand_requests_at_once_on_one_connection_are_all_answered(
    registry: Daemon, sockets: ExitStack
) -> None:
    body = b'{"labels":[],"kv":{}}'
    one = head(registry, f"Content-Length: {len(body)}") + body
    client = connect(registry, sockets, one * 1000)

    received = b""
    while received.count(b"HTTP/1.1 200 OK") < 1000 or not received.endswith(b"}]"):
        chunk = client.recv(MEBIBYTE)
        assert chunk, "the connection ended early"
        received += chunk

    assert received.count(b"HTTP/1.1") == 1000


GET = b"GET /nodes HTTP/1.1\r\nHost: x\r\n"
NO_HTTP = [
    GET + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    GET + b"Content-Length: +4\r\n\r\n",
    GET + b"Transfer-Encoding: weird\r\n\r\n",
    GET + b" folded: y\r\n\r\n",
    GET + b"X: \x1b[31m\r\n\r\n",
    GET + b"X: " + b"y" * 10_000 + b"\r\n\r\n",
    b"GET /nodes HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /" + b"y" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /nodes HTTP/9.9\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 100 + b"\r\n\r\n",
]


def test_what_is_no_http_is_refused_with_a_message_and_no_traceback(
    registry: Daemon, sockets: ExitStack
) -> None:
    for request in NO_HTTP:
        client = connect(registry, sockets, request)
        received = b""
        while chunk := client.recv(65536):
            received += chunk

        assert b" 400 " in received.partition(CRLF)[0], request
        assert b'{"message":' in received
    assert registry.ask("GET", "/nodes").status_code == 200
    assert "Traceback" not in registry.log()
