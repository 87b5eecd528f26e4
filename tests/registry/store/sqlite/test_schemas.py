"""Stores of other releases: each released schema is read, and all others are left as they are."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreVersionError
from registry.store.protocol import Row
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.sqlite_store import (
    fill,
    heard_of,
    ignore,
    open_store,
    row,
)

SCHEMAS = Path(__file__).with_name("schemas")
RELEASED = sorted(SCHEMAS.glob("*.sql"))  # dumps of what registries wrote
LATER_TOLD = "has schema version 99, this release knows 4; it is left as it is: run the release"


def write_dump(path: Path, dump: Path) -> None:
    """Make the store that was dumped."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text("utf-8"))


def nodes_of(dump: Path) -> list[Row]:
    """Return what is stored in a dump, without our code."""
    query = (
        "SELECT hostname, document, last_update, address, 130 - uptime FROM node ORDER BY hostname"
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(dump.read_text("utf-8"))
        return [heard(Row(*columns), connection) for columns in connection.execute(query)]


def heard(row: Row, connection: sqlite3.Connection) -> Row:
    """Return a node as it is with what the log has of it."""
    stored = (130 - row.age, row.last_update, row.address)
    times = [stored, *heard_of(connection, row.hostname)]
    uptime, last_update, address = max(times, key=lambda heard: heard[0])
    return row._replace(last_update=last_update, age=130 - uptime, address=address or row.address)


@pytest.mark.slow
@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
async def test_a_store_of_each_released_schema_is_used_with_all_nodes(
    dump: Path, tmp_path: Path
) -> None:
    path = tmp_path / "r.db"
    write_dump(path, dump)
    assert SqliteBackend(path).check() == 41

    async with open_store(path) as (store, rows):
        assert [one._replace(age=round(one.age)) for one in rows] == nodes_of(dump)
        await touch(store, "odd", last_update=7, address="192.0.2.77")
        await store.put(row("web-00.example.com"), ignore)
    async with open_store(path) as (_, rows):
        found = {one.hostname: one for one in rows}
    assert len(found) == 41
    assert found["odd"][2:5] == (7, "192.0.2.77", 0)
    assert found["web-00.example.com"] == row("web-00.example.com")
    assert found["web-03.example.com"].age == 30


COMMANDS: dict[str, Callable[[Path], object]] = {
    "check": lambda path: SqliteBackend(path).check(),
    "backup": lambda path: SqliteBackend(path).backup(path.with_name("backup")),
    "restore": lambda path: SqliteBackend(path.with_name("restored.db")).restore(path),
    "delete": lambda path: SqliteBackend(path).delete(["odd"]),
    "copy": lambda path: SqliteBackend(path).snapshot(),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_later_release_is_recognised_where_only_the_log_has_its_version(
    command: str, tmp_path: Path
) -> None:
    path, killed = tmp_path / "r.db", tmp_path / "killed.db"
    await fill(path, "a")
    with closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 99").close()
        for suffix in ("", "-wal"):
            killed.with_name(f"killed.db{suffix}").write_bytes(
                path.with_name(f"r.db{suffix}").read_bytes()
            )
    assert killed.read_bytes()[60:64] == b"\0\0\0\4"  # the version in the file itself

    with pytest.raises(StoreVersionError, match=LATER_TOLD):
        COMMANDS[command](killed)
    with pytest.raises(StoreVersionError, match=LATER_TOLD):
        async with open_store(killed):
            pass
