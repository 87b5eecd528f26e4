"""Stores of other releases: each released schema is read, and all others are left as they are."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreVersionError
from registry.store.protocol import Row
from registry.store.sqlite import commands
from registry.store.sqlite.commands import delete
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.sqlite_store import (
    fill,
    heard_of,
    ignore,
    open_store,
    row,
    start_error,
)

SCHEMAS = Path(__file__).with_name("schemas")
# Dumps of what registries wrote: since the first release, and before it.
RELEASED = [SCHEMAS / "schema_4.sql"]
EARLIER = SCHEMAS / "schema_3.sql"
EARLIER_TOLD = "has schema version 3, from before the first release"
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
    assert commands.check(path) == 41

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
    "check": commands.check,
    "backup": lambda path: commands.write_backup(path, path.with_name("backup")),
    "restore": lambda path: commands.restore(path, path.with_name("restored.db")),
    "delete": lambda path: delete(path, ["odd"]),
    "copy": commands.snapshot,
}


async def test_a_store_from_before_the_first_release_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    write_dump(path, EARLIER)

    told = await start_error(path)

    assert EARLIER_TOLD in told
    assert "move it away together with those beside it that end in -wal and -shm" in told


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_uses_a_store_from_before_the_first_release(
    command: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.db"
    write_dump(path, EARLIER)
    content = path.read_bytes()

    with pytest.raises(StoreVersionError, match=EARLIER_TOLD):
        COMMANDS[command](path)

    assert path.read_bytes() == content


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
