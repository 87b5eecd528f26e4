"""What clients can do to either daemon without a key, or with one that is good for little."""

import select
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest
import requests

from dev.waiting import until
from httpd.server.handshakes import REJECTION_DESCRIPTORS
from tests.support.daemons import Daemon, Daemons
from tests.support.httpd.tls import TlsListener, connect
from tests.support.machine.memory import MEBIBYTE, peak, reset_peak, resident
from tests.support.machine.memory_cgroup import memory_max
from tests.support.run.release import some_of

# The bound is 64 MiB; aiohttp, Python and the C library keep something beside it.
MAX_GROWTH = 120 * MEBIBYTE
# A thousand heads of 16 KiB, or two hundred with what TLS takes for each, and as much beside it.
MAX_GROWTH_OF_HEADS = 48 * MEBIBYTE
MAX_LEFT_OVER = 60 * MEBIBYTE
HEADER = b"X-Padding: " + b"x" * 7987 + b"\r\n"
REGISTRY, AGENT = "registry", "agent"
HEALTH = {REGISTRY: 200, AGENT: 503}  # the agent has no engine
pytestmark = pytest.mark.real
BOTH = pytest.mark.parametrize("kind", [REGISTRY, AGENT])
ONE = pytest.mark.parametrize(
    "kind", some_of([REGISTRY, AGENT], REGISTRY, reason="both daemons have the same server")
)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tls(tmp_path: Path) -> TlsListener:
    """Return the TLS of a listener."""
    return TlsListener(tmp_path / "tls")


def start(daemons: Daemons, kind: str, **settings: Any) -> Daemon:
    """Start a daemon."""
    return daemons.registry(**settings) if kind == REGISTRY else daemons.agent(**settings)


def path_with_body(kind: str) -> tuple[str, int]:
    """Return a route that takes a body, and how large that may be."""
    return ("/nodes/evil", MEBIBYTE) if kind == REGISTRY else ("/v1/apps", 65536)


def is_cut_off(client: socket.socket) -> bool:
    """Return whether the server has closed the connection, now or within a tenth of a second."""
    client.settimeout(0.1)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def closed(clients: Sequence[socket.socket]) -> list[bool]:
    """Return for each connection whether the server has closed it."""
    waiting = select.poll()
    for client in clients:
        waiting.register(client, select.POLLRDHUP)
    ended = {number for number, _ in waiting.poll(0)}
    return [client.fileno() in ended for client in clients]


def send_all(clients: Sequence[socket.socket], data: bytes) -> None:
    """Send the same on all connections as far as each takes it; some may be closed meanwhile."""
    left = {client.fileno(): (client, memoryview(data)) for client in clients}
    waiting = select.poll()
    for number, (client, _) in left.items():
        client.setblocking(False)
        waiting.register(number, select.POLLOUT)
    while left and (ready := waiting.poll(5000)):
        for number, _ in ready:
            client, rest = left.pop(number)
            with suppress(OSError):
                if rest := rest[_sent(client, rest) :]:
                    left[number] = client, rest
                    continue
            waiting.unregister(number)


def _sent(client: socket.socket, data: memoryview) -> int:
    """Return how many bytes a connection has taken; over TLS it may be none."""
    try:
        return client.send(data)
    except ssl.SSLWantWriteError:
        return 0


def metric(daemon: Daemon, line: str) -> float:
    """Return the value of a metric, named with its labels."""
    page = daemon.ask("GET", "/metrics").text.splitlines()
    return next(float(each.split()[-1]) for each in page if each.startswith(f"{line} "))


def ended_heads(daemon: Daemon) -> float:
    """Return how many heads were rejected as too large, or cut off."""
    page = daemon.ask("GET", "/metrics").text.splitlines()
    ends = (
        'rollcall_http_rejections_total{status="431"}',
        "rollcall_http_connections_cut_off_total{",
    )
    return sum(float(line.split()[-1]) for line in page if line.startswith(ends))


@pytest.mark.console_script
@ONE
@pytest.mark.parametrize(
    ("over", "count", "headers"),
    some_of(
        [("plain", 1000, 20), ("tls", 200, 100)], ("tls", 200, 100), reason="memory, without TLS"
    ),
)
def test_heads_without_end_take_little_memory(
    daemons: Daemons,
    sockets: ExitStack,
    tls: TlsListener,
    kind: str,
    over: str,
    count: int,
    headers: int,
) -> None:
    used = tls if over == "tls" else None
    daemon = start(daemons, kind, **(used.settings if used else {}))
    before = resident(daemon)
    reset_peak(daemon)

    head = b"GET /nodes HTTP/1.1\r\nHost: x\r\n"
    clients = [connect(daemon, sockets, head, tls=used) for _ in range(count)]
    for _ in range(headers):
        send_all(clients, HEADER)
    assert daemon.ask("GET", "/swagger.json").ok
    until(lambda: ended_heads(daemon) >= count, "the end of each head", within=60)

    assert peak(daemon) - before < MAX_GROWTH_OF_HEADS
    assert peak(daemon) < memory_max(kind)
    assert "Traceback" not in daemon.log()


@ONE
@pytest.mark.console_script
def test_bodies_without_end_take_little_memory(
    daemons: Daemons, sockets: ExitStack, kind: str
) -> None:
    daemon = start(daemons, kind, max_connections=3000)
    before = resident(daemon)
    reset_peak(daemon)
    path, size = path_with_body(kind)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {daemon.key}\r\n"
    unfinished = f"{head}Content-Length: {size}\r\n\r\n".encode() + b"x" * (size - 1)

    # The first and the last fit into the bound; those between are beyond it.
    sizes = (50, 200, 50) if kind == REGISTRY else (300, 1400, 300)
    first, middle, last = [[connect(daemon, sockets) for _ in range(size)] for size in sizes]
    for part in (first, middle, last):
        send_all(part, unfinished)
        assert daemon.ask("GET", "/swagger.json").ok  # what was sent before has begun

    cut_off = 'rollcall_http_connections_cut_off_total{reason="memory"}'
    until(lambda: all(closed(first)), "the end of who began first", within=60)
    assert not any(closed(last))
    assert metric(daemon, cut_off) >= len(first)
    assert peak(daemon) - before < 2 * MAX_GROWTH  # while those that were cut off come to their end
    assert peak(daemon) < memory_max(kind)
    until(lambda: resident(daemon) - before < MAX_LEFT_OVER, "their end", within=60)
    assert "Traceback" not in daemon.log()


@ONE
def test_a_head_that_is_too_large_is_reported_so(
    daemons: Daemons, sockets: ExitStack, kind: str
) -> None:
    daemon = start(daemons, kind)
    for before in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"):
        client = connect(daemon, sockets, before + b"GET / HTTP/1.1\r\n" + 3 * HEADER)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
        answered = received.count(b"HTTP/1.1 %d " % HEALTH[kind])
        assert answered == len(before[:1])
        assert b"HTTP/1.1 431 " in received
        assert b"limit of 16384 bytes" in received


@BOTH
def test_without_a_key_nothing_is_learned_but_health_and_that_there_is_a_page(
    daemons: Daemons, kind: str
) -> None:
    daemon = start(daemons, kind)
    paths = ["/healthz", "/", "/metrics", "/swagger.json", "/nothing", "/nodes/a", "/v1/apps/a"]
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        statuses = [
            requests.request(method, daemon.base_url + path, timeout=30).status_code
            for path in paths
        ]
        is_read = method in {"GET", "HEAD"}
        open_paths = [HEALTH[kind], 200] if is_read else [401, 401]
        assert statuses == open_paths + [401] * (len(paths) - 2), method
        if statuses[0] == 401:
            assert daemon.ask(method, "/healthz").status_code == 405


@BOTH
def test_without_pages_nothing_is_learned_but_health(daemons: Daemons, kind: str) -> None:
    daemon = start(daemons, kind, pages=False)

    assert requests.get(f"{daemon.base_url}/", timeout=30).status_code == 401
    assert requests.get(f"{daemon.base_url}/pages/common/style.css", timeout=30).status_code == 401
    assert daemon.ask("GET", "/").status_code == 404


@BOTH
def test_a_body_that_nobody_wants_is_rejected_as_any_other(daemons: Daemons, kind: str) -> None:
    daemon = start(daemons, kind)
    path = "/nodes/a" if kind == REGISTRY else "/v1/apps/web"

    def status(method: str, body: Any = b"", **headers: str) -> int:
        headers["Connection"] = "close"
        return daemon.ask(method, path, headers=headers, data=body).status_code

    for method in ("GET", "DELETE"):
        assert status(method, **{"Content-Encoding": "gzip"}) == 415
        assert status(method, b"x" * 65537) == 413
        assert status(method, iter([b"x" * 40_000] * 2)) == 413
        assert status(method, b"x" * 65536) == status(method)


@ONE
def test_silent_sockets_make_room_for_who_asks(
    daemons: Daemons, sockets: ExitStack, kind: str
) -> None:
    daemon = start(daemons, kind, max_connections=50)
    silent = [connect(daemon, sockets) for _ in range(200)]
    assert KeptConnection(daemon, sockets).ask() == 200
    assert metric(daemon, 'rollcall_http_connections_cut_off_total{reason="room"}') >= 150
    until(lambda: all(map(is_cut_off, silent)), "their end, 10 s after they connected", within=30)


@ONE
@pytest.mark.parametrize("when", ["before the handshake", "after it"])
def test_silent_sockets_make_room_over_tls(
    daemons: Daemons, sockets: ExitStack, tls: TlsListener, kind: str, when: str
) -> None:
    daemon = start(daemons, kind, max_connections=50, **tls.settings)
    if when == "before the handshake":
        for _ in range(200 + REJECTION_DESCRIPTORS):
            connect(daemon, sockets)
    else:
        for _ in range(200):
            connect(daemon, sockets, tls=tls)

    assert daemon.ask("GET", "/swagger.json").ok

    assert metric(daemon, 'rollcall_http_connections_cut_off_total{reason="room"}') >= 150
    assert metric(daemon, "rollcall_http_connections_rejected_total") == 0


@ONE
def test_a_fleet_that_is_larger_than_the_limit_is_served(
    daemons: Daemons, sockets: ExitStack, kind: str
) -> None:
    daemon = start(daemons, kind, max_connections=50)
    hosts = [KeptConnection(daemon, sockets) for _ in range(70)]
    for _ in range(3):
        for host in hosts:
            assert host.ask() == 200
    assert metric(daemon, 'rollcall_http_connections_cut_off_total{reason="room"}') > 0
    assert metric(daemon, "rollcall_http_connections_rejected_total") == 0


class KeptConnection:
    """A host that keeps its connection, and connects again where the server has closed it."""

    def __init__(self, daemon: Daemon, sockets: ExitStack) -> None:
        self._host = daemon.base_url.removeprefix("http://")
        self._headers = {"Authorization": daemon.key}
        self._connection = sockets.enter_context(closing(HTTPConnection(self._host, timeout=30)))

    def ask(self) -> int:
        """Send a request; return the status of its answer."""
        while True:
            try:
                self._connection.request("GET", "/swagger.json", headers=self._headers)
                response = self._connection.getresponse()
            except (ConnectionError, RemoteDisconnected):
                self._connection.close()
                continue
            response.read()
            return response.status
