"""Whatever readers do to a registry of a hundred thousand nodes, its memory is bounded."""

import asyncio
import resource
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from registry.store.protocol import Row
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.memory import MEBIBYTE, peak, reset_peak, resident
from tests.support.machine.memory_cgroup import MemoryCgroup, memory_max
from tests.support.registry.load.large_fleet import rows
from tests.support.registry.stores.sqlite_store import ignore, open_store

# Beside other tests, each takes some minutes.
pytestmark = [
    pytest.mark.real,
    pytest.mark.long(3),
    pytest.mark.release("a hundred thousand nodes, for several minutes"),
]

NODES = 100_000
LARGE_NODES = 20_000
LARGE_NODE_BYTES = 8192
STRANGERS = 1000
UNFINISHED_HEAD = b"GET / HTTP/1.1\r\nX: " + b"x" * 15_000
CHANGES = 1000
BUSY_HOSTS = 100
HEARTBEAT_PAUSE = 0.1
# Far beyond what an answer takes on a slow machine: who waits for longer waits for ever.
MAX_ANSWER_SECONDS = 10.0
MIN_HEARTBEATS = 10
VAR = Path(__file__).parents[4] / "var"
MAX_GROWTH = 400 * MEBIBYTE
SMALL_BUFFER = 4096
SLOW_READ_SECONDS = 9.0
READ_BYTES = 1024 * 1024


class Load(NamedTuple):
    """How many clients read the whole list at once; half of the watchers never read."""

    slow_readers: int
    gzip_readers: int
    watchers: int


LOAD = Load(slow_readers=300, gzip_readers=100, watchers=1000)
# Of several teams: one key gets only its share of the room for readers, and of the watchers.
READ_KEYS = [f"team-{number}-0123456789abcdef" for number in range(3)]
KEYS = [
    {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
    *[{"name": key[:6], "value": key, "allow": ["read"]} for key in READ_KEYS],
]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let the test have as many connections as it opens."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def fill(path: Path, nodes: Iterable[Row]) -> None:
    """Make a store of many nodes."""
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row, ignore) for row in nodes])


class Clients:
    """Connections to a registry, which are closed at the end."""

    def __init__(self, registry: Daemon, stack: AsyncExitStack) -> None:
        self._registry = registry
        self._stack = stack
        self._port = int(registry.base_url.rpartition(":")[2])

    async def ask(
        self, target: str, *headers: str, method: str = "GET", body: bytes = b"", key: str = ""
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
            f"Authorization: Bearer {key or self._registry.key}",
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


async def read_slowly(reader: asyncio.StreamReader) -> None:
    """Read a little now and then, so that the connection never counts as stalled."""
    with suppress(ConnectionError):
        data = await reader.read(SMALL_BUFFER)
        while data:
            await asyncio.sleep(SLOW_READ_SECONDS)
            data = await reader.read(SMALL_BUFFER)


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


async def begin_requests(registry: Daemon) -> None:
    """Begin a request without a key, do not finish it, and begin anew once that is cut off."""
    port = int(registry.base_url.rpartition(":")[2])
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(UNFINISHED_HEAD)
            with suppress(ConnectionError):
                await read_all(reader)
        finally:
            writer.close()


async def report_steadily(registry: Daemon, load_over: asyncio.Event) -> int:
    """Send heartbeats as a host does, each is accepted; return how many there were."""
    heartbeats = 0
    while not load_over.is_set():
        async with asyncio.timeout(MAX_ANSWER_SECONDS), AsyncExitStack() as stack:
            answer = await Clients(registry, stack).ask(
                "/nodes/steady",
                "Connection: close",
                method="POST",
                body=b'{"labels":["steady"],"kv":{}}',
            )
            assert (await answer.readline()).startswith(b"HTTP/1.1 200")
        heartbeats += 1
        await asyncio.sleep(HEARTBEAT_PAUSE)
    return heartbeats


async def run_load(registry: Daemon, load: Load) -> None:
    """Read slowly, read compressed, watch and begin requests, while hosts report changes."""
    load_over = asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clients = Clients(registry, stack)
        last_id = await first_id(clients)
        reporting = group.create_task(report_steadily(registry, load_over))
        keys = islice(cycle(READ_KEYS), load.slow_readers)
        slow = await asyncio.gather(*[clients.ask("/nodes", key=key) for key in keys])
        begun = await asyncio.gather(*[reader.read(SMALL_BUFFER) for reader in slow])
        statuses = {answer.split(b"\r\n")[0] for answer in begun}
        assert statuses == {b"HTTP/1.1 200 OK"}
        reading = [group.create_task(read_slowly(reader)) for reader in slow]
        strangers = [group.create_task(begin_requests(registry)) for _ in range(STRANGERS)]
        watching = []
        for number in range(load.watchers):
            reader = await watch(clients, number, last_id)
            if number % 2:
                watching.append(group.create_task(read_all(reader)))
        await asyncio.gather(*[read_compressed(clients) for _ in range(load.gzip_readers)])
        await change(clients)
        load_over.set()
        assert await reporting >= MIN_HEARTBEATS
        for task in (*reading, *strangers, *watching):
            task.cancel()


async def watch(clients: Clients, number: int, last_id: str) -> asyncio.StreamReader:
    """Watch changes; every fifth client has filters of its own, and begins with the list."""
    key = READ_KEYS[number % len(READ_KEYS)]
    if number % 5:
        return await clients.ask("/nodes?watch=true", f"Last-Event-ID: {last_id}", key=key)
    filters = f"prefix=web-&prefix=large-&prefix={number}"
    return await clients.ask(f"/nodes?watch=true&{filters}", key=key)


async def read_compressed(clients: Clients) -> None:
    """Read all nodes, compressed."""
    reader = await clients.ask("/nodes", "Accept-Encoding: gzip", "Connection: close")
    assert await read_all(reader) > NODES


async def change(clients: Clients) -> None:
    """Report changes of some hosts."""
    for number in range(CHANGES):
        body = b'{"labels":["change:%d"],"kv":{}}' % number
        answer = await clients.ask(
            f"/nodes/busy-{number % BUSY_HOSTS}", "Connection: close", method="POST", body=body
        )
        assert (await answer.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("many_files")
@pytest.mark.console_script
async def test_readers_of_every_kind_take_a_bounded_amount(
    daemons: Daemons, tmp_path: Path
) -> None:
    path = tmp_path / "registry.db"
    await fill(path, rows(NODES))
    registry = await asyncio.to_thread(daemons.registry, store=f"sqlite:///{path}", keys=KEYS)
    loaded = resident(registry)
    reset_peak(registry)

    assert registry.ask("GET", "/prometheus/node").ok  # from here on, targets are kept
    await run_load(registry, LOAD)

    assert peak(registry) - loaded < MAX_GROWTH
    assert registry.ask("GET", "/nodes/busy-1").ok


@pytest.mark.usefixtures("many_files")
async def test_the_units_limit_holds_where_nodes_take_all_that_they_may(
    unit_cgroup: MemoryCgroup, disk_folder: Path, daemons: Daemons
) -> None:
    path = disk_folder / "registry.db"
    # Where nodes take more than four fifths of the bound, only those that are known may change.
    reporting = ["canary", "steady", *[f"busy-{number}" for number in range(BUSY_HOSTS)]]
    known = [Row(name, b'{"labels":[],"kv":{}}', 0, "127.0.0.1") for name in reporting]
    await fill(path, [*rows(LARGE_NODES, further_bytes=LARGE_NODE_BYTES), *known])
    daemons.prefix = unit_cgroup.prefix()
    registry = await asyncio.to_thread(daemons.registry, store=f"sqlite:///{path}", keys=KEYS)
    assert unit_cgroup.holds(registry.pid)
    rejected = registry.ask("POST", "/nodes/another", json={"labels": [], "kv": {}})
    assert rejected.status_code == 507

    await run_load(registry, LOAD)

    assert unit_cgroup.kills() == 0
    assert registry.ask("GET", "/nodes/busy-1").ok


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """Yield a folder on a disk: files in memory would count for the cgroup that wrote them.

    Daemons that use it are to be asked for after it, so that they end before it goes.
    """
    VAR.mkdir(mode=0o700, exist_ok=True)
    with TemporaryDirectory(prefix="test-", dir=VAR) as folder:
        yield Path(folder)


@pytest.fixture
def unit_cgroup() -> Iterator[MemoryCgroup]:
    """Yield a cgroup with the memory that the registry's unit allows; daemons end before it."""
    name = f"rollcall-test-{secrets.token_hex(8)}"
    with MemoryCgroup(name, limit=memory_max("registry")) as cgroup:
        yield cgroup
