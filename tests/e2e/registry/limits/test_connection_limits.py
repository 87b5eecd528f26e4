"""More connections than anybody needs: memory stays bounded, and good clients are served."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.httpd.tls import connect

IDLE = 10_000
ROOM = IDLE + 50
MEBIBYTE = 1024 * 1024
FEW_FILES = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh")
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


def resident(registry: Daemon) -> int:
    """Return the process's memory in bytes."""
    return int(Path(f"/proc/{registry.pid}/statm").read_text("ascii").split()[1]) * 4096


def metric(registry: Daemon, name: str) -> float:
    """Return a metric of the registry, named with its labels."""
    lines = registry.ask("GET", "/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def connections(registry: Daemon) -> float:
    """Return the number of connections that the registry knows of."""
    return metric(registry, "rollcall_http_connections")


def until_room_was_made(registry: Daemon, least: int) -> None:
    """Wait until so many connections were closed to make room for others."""
    name = 'rollcall_http_connections_cut_off_total{reason="room"}'
    until(lambda: metric(registry, name) >= least, f"room for {least}", within=60)


@pytest.mark.release("load: ten thousand connections")
@pytest.mark.real
@pytest.mark.usefixtures("many_files")
@pytest.mark.console_script
def test_ten_thousand_idle_connections_are_held_and_good_clients_served(
    daemons: Daemons, sockets: ExitStack
) -> None:
    registry = daemons.registry(max_connections=ROOM, log={"level": "info"})
    assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
    before = resident(registry)

    asked = f"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: {registry.key}\r\n\r\n".encode()
    idle = [connect(registry, sockets, asked) for _ in range(IDLE)]
    until(lambda: connections(registry) >= IDLE + 1, "all connections", within=60)
    grown = resident(registry) - before
    assert grown < 120 * MEBIBYTE

    for _ in range(20):
        assert registry.ask("GET", "/prometheus/web", headers={"Connection": "close"}).ok
        assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
        assert registry.ask("GET", "/nodes").json()[0]["hostname"] == "good"
    late = [connect(registry, sockets) for _ in range(100)]
    until_room_was_made(registry, len(late) + IDLE + 1 - ROOM)
    assert registry.ask("POST", "/nodes/good", json=EMPTY).ok
    for client in (*idle, *late):
        client.close()
    until(lambda: connections(registry) <= 2, "their end", within=60)
    assert "Traceback" not in registry.log()


@pytest.mark.real
@pytest.mark.parametrize("kind", ["registry", "agent"])
def test_a_daemon_with_few_files_says_so_and_makes_room_for_each_client(
    daemons: Daemons, sockets: ExitStack, kind: str
) -> None:
    daemons.prefix = FEW_FILES
    start = daemons.registry if kind == "registry" else daemons.agent
    daemon = start(max_connections=1000)
    assert daemon.ask("GET", "/swagger.json").ok

    for _ in range(700):
        connect(daemon, sockets)

    until_room_was_made(daemon, 700 + 1 - 44)
    assert daemon.ask("GET", "/swagger.json").ok
    assert "fewer connections than configured" in daemon.log()
    assert "to 1256" in daemon.log()
    assert "Too many open files" not in daemon.log()
