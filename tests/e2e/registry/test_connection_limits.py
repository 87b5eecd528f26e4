"""More connections than anybody needs: memory stays bounded, and good clients are served."""

import resource
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.registry.replacement_process import replacement_process

CROWD = 10_000
ROOM = CROWD + 50
MEBIBYTE = 1024 * 1024
PROGRAM = Path(sys.executable).with_name("rollcall-registry")
EMPTY: dict[str, object] = {"labels": [], "kv": {}}


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Yield what closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files of this process for all clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ROOM + 500:
        pytest.skip(f"needs {ROOM + 500} open files, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(registry: Daemon, sockets: ExitStack, sent: bytes = b"") -> socket.socket:
    """Open a connection and send something."""
    port = int(registry.base_url.rpartition(":")[2])
    client = sockets.enter_context(closing(socket.create_connection(("127.0.0.1", port), 30)))
    client.sendall(sent)
    return client


def until_refused(clients: Sequence[socket.socket], least: int) -> None:
    """Wait until so many of them were told that there are too many connections."""

    def refused(client: socket.socket) -> bool:
        client.setblocking(False)
        with suppress(BlockingIOError):
            told = client.recv(4096, socket.MSG_PEEK)
            return told.startswith(b"HTTP/1.1 503 ") and b"too many connections" in told
        return False

    until(lambda: sum(map(refused, clients)) >= least, f"{least} refusals", within=60)


def resident(registry: Daemon) -> int:
    """Return the process's memory in bytes."""
    return int(Path(f"/proc/{registry.pid}/statm").read_text("ascii").split()[1]) * 4096


def connections(registry: Daemon) -> float:
    """Return the number of connections that the registry knows of."""
    lines = registry.ask("GET", "/metrics").text.splitlines()
    return next(
        float(line.split()[1]) for line in lines if line[:25] == "rollcall_http_connections"
    )


@pytest.mark.real
@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_are_held_and_good_clients_served(
    daemons: Daemons, sockets: ExitStack
) -> None:
    registry = daemons.registry(max_connections=ROOM, log={"level": "info"})
    assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
    before = resident(registry)

    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    idle = [connect(registry, sockets, asked if number % 2 else b"") for number in range(CROWD)]
    until(lambda: connections(registry) >= CROWD + 1, "the crowd", within=60)
    grown = resident(registry) - before
    assert grown < 120 * MEBIBYTE

    for _ in range(20):
        assert registry.ask("GET", "/prometheus/web", headers={"Connection": "close"}).ok
        assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
        assert registry.ask("GET", "/nodes").json()[0]["hostname"] == "good"
    late = [connect(registry, sockets) for _ in range(100)]
    until_refused(late, len(late) + CROWD + 1 - ROOM)
    assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
    for client in (*idle, *late):
        client.close()
    until(lambda: connections(registry) <= 2, "their end", within=60)
    assert "Traceback" not in registry.log()


@pytest.mark.real
def test_a_registry_with_few_files_says_so_and_refuses_what_it_cannot_serve(
    daemons: Daemons, sockets: ExitStack
) -> None:
    registry = daemons.registry(max_connections=1000, log={"level": "info"})
    limited = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh")
    with replacement_process(
        registry, *limited, str(PROGRAM), "--config", str(registry.config_path)
    ):
        assert registry.ask("POST", "/nodes/good", json=EMPTY).ok

        crowd = [connect(registry, sockets) for _ in range(700)]

        until_refused(crowd, len(crowd) + 1 - 44)
        assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
    assert "fewer connections than configured" in registry.log()
    assert "to 1256" in registry.log()
    assert "Too many open files" not in registry.log()
