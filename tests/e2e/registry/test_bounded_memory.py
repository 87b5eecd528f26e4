"""Whatever readers do to a registry of a hundred thousand nodes, its memory is bounded."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.registry.large_fleet import rows
from tests.support.registry.sqlite_store import ignore, open_store

pytestmark = pytest.mark.real

NODES = 100_000
SLOW_READERS = 300
GZIP_READERS = 100
WATCHERS = 1000
CHANGES = 1000
MAX_GROWTH_KIB = 400 * 1024
SMALL_BUFFER = 4096
READ_BYTES = 1024 * 1024


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let the test have as many connections as it opens."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def fill(path: Path) -> None:
    """Make a store of many nodes."""
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row, ignore) for row in rows(NODES)])


def peak_kib(daemon: Daemon) -> int:
    """Return the most memory that a daemon had so far."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


class Clients:
    """Connections to a registry, which are closed at the end."""

    def __init__(self, registry: Daemon, stack: AsyncExitStack) -> None:
        self._registry = registry
        self._stack = stack
        self._port = int(registry.base_url.rpartition(":")[2])

    async def ask(
        self, target: str, *headers: str, method: str = "GET", body: bytes = b""
    ) -> asyncio.StreamReader:
        """Send a request over a new connection with small buffers; return what reads its answer."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL_BUFFER)
        self._stack.callback(writer.close)
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: registry",
            f"Authorization: Bearer {self._registry.key}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return reader


async def read_all(reader: asyncio.StreamReader) -> int:
    """Read to the end; return how many bytes there were."""
    size = 0
    while data := await reader.read(READ_BYTES):
        size += len(data)
    return size


async def first_id(clients: Clients) -> str:
    """Return an id from which a watcher gets changes alone."""
    reader = await clients.ask("/nodes?watch=true&label=nothing")
    await clients.ask(
        "/nodes/canary", method="POST", body=b'{"labels":["nothing"],"kv":{"agent.id":"c"}}'
    )
    line = b""
    while not (line.startswith(b"id: ") and line.count(b"-") == 1):
        line = await reader.readuntil(b"\n")
    return line.decode().split()[1]


async def siege(registry: Daemon) -> None:
    """Read slowly, compressed and for ever, while hosts report changes."""
    async with AsyncExitStack() as stack:
        clients = Clients(registry, stack)
        last_id = await first_id(clients)
        slow = await asyncio.gather(*[clients.ask("/nodes") for _ in range(SLOW_READERS)])
        begun = await asyncio.gather(*[reader.read(SMALL_BUFFER) for reader in slow])
        statuses = {answer.split(b"\r\n")[0] for answer in begun}
        assert statuses == {b"HTTP/1.1 200 OK"}
        reading = []
        for number in range(WATCHERS):
            reader = await clients.ask("/nodes?watch=true", f"Last-Event-ID: {last_id}")
            if number % 2:
                reading.append(asyncio.create_task(read_all(reader)))
        compressed = [
            asyncio.create_task(
                read_all(await clients.ask("/nodes", "Accept-Encoding: gzip", "Connection: close"))
            )
            for _ in range(GZIP_READERS)
        ]
        for number in range(CHANGES):
            body = b'{"labels":["change:%d"],"kv":{}}' % number
            answer = await clients.ask(
                f"/nodes/busy-{number % 100}", "Connection: close", method="POST", body=body
            )
            assert (await answer.readline()).startswith(b"HTTP/1.1 200")
        sizes = await asyncio.gather(*compressed)
        assert min(sizes) > NODES
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


@pytest.mark.usefixtures("many_files")
async def test_readers_of_every_kind_take_a_bounded_amount(
    daemons: Daemons, tmp_path: Path
) -> None:
    path = tmp_path / "registry.db"
    await fill(path)
    registry = await asyncio.to_thread(daemons.registry, store=f"sqlite:///{path}")
    await asyncio.to_thread(
        until, lambda: registry.ask("GET", "/prometheus/node").ok, "targets", within=60.0
    )
    loaded = peak_kib(registry)

    await siege(registry)

    assert peak_kib(registry) - loaded < MAX_GROWTH_KIB
    assert registry.ask("GET", "/nodes/busy-1").ok
