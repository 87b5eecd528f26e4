"""A store in a file, opened and filled by a test."""

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from registry.errors import StoreOpenError
from registry.store.protocol import Row
from registry.store.sqlite.heard_log import MIN_ENTRIES
from registry.store.sqlite.store import SqliteStore
from tests.support.machine.clocks import ManualClock

DOCUMENT = b'{"labels":["a"],"kv":{}}'


class Batches(list[int]):
    """The sizes of the batches that were written."""

    def observe(self, operations: int, seconds: float) -> None:
        assert seconds >= 0
        self.append(operations)


def ignore(_error: Exception | None) -> None:
    """Do nothing with an outcome."""


def row(hostname: str, document: bytes = DOCUMENT) -> Row:
    return Row(hostname, document, 1_700_000_000, "192.0.2.1")


def hostnames_of(rows: Sequence[Row]) -> list[str]:
    return [row.hostname for row in rows]


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    uptime: ManualClock | None = None,
    batches: Batches | None = None,
    min_log_entries: int = MIN_ENTRIES,
) -> AsyncIterator[tuple[SqliteStore, Sequence[Row]]]:
    store = SqliteStore(
        path=path,
        monotonic=uptime or ManualClock(),
        observe=(Batches() if batches is None else batches).observe,
        min_log_entries=min_log_entries,
    )
    try:
        yield store, (await store.load()).rows
    finally:
        await store.close()


async def fill(path: Path, *hostnames: str) -> None:
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row(hostname), ignore) for hostname in hostnames])


async def start_error(path: Path) -> str:
    """Return why a file is rejected; see to it that it stays as it was, with no log beside it."""
    content, names_before = directory_snapshot(path)
    with pytest.raises(StoreOpenError) as caught:
        async with open_store(path):
            pass
    assert directory_snapshot(path)[0] == content
    assert directory_snapshot(path)[1] <= names_before | {path.name + ".lock", path.name + ".stamp"}
    return str(caught.value)


def directory_snapshot(path: Path) -> tuple[bytes, set[str]]:
    """Return what a file holds, and the names beside it."""
    return path.read_bytes(), {other.name for other in path.parent.iterdir()}


def heard_of(
    connection: sqlite3.Connection, hostname: str
) -> Iterator[tuple[float, int, str | None]]:
    """Yield, without our code, each uptime, `last_update` and address that the log has of a host.

    Where it has none, the address is that of the node's row.
    """
    name = hashlib.sha256(hostname.encode()).digest()[:12]
    for uptime, names, times in connection.execute("SELECT uptime, names, times FROM heard_log"):
        last_updates, ages, addresses = msgspec.msgpack.decode(times)
        for position in range(len(names) // 12):
            if names[12 * position : 12 * position + 12] == name:
                age = ages[position] if ages else 0
                yield uptime - age, last_updates[position], addresses.get(position)


def stored_last_update(path: Path, hostname: str) -> int:
    """Read from the file, without our code, when a host was seen last."""
    query = "SELECT uptime, last_update FROM node WHERE hostname = ?"
    with closing(sqlite3.connect(path)) as connection:
        times = [(uptime, last) for uptime, last, _ in heard_of(connection, hostname)]
        _, last_update = max([*connection.execute(query, [hostname]), *times])
    return int(last_update)
