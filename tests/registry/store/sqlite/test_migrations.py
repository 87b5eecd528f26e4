"""Stores of earlier and later releases: taken over whole, wherever the migration is killed."""

import shutil
import sqlite3
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.protocol import Row
from registry.store.sqlite import backups
from registry.store.sqlite.schema import SCHEMAS, Schema
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.sqlite_store import (
    EARLIER,
    WRITTEN,
    heard_of,
    ignore,
    open_store,
    row,
    start_error,
    write_earlier_store,
)

PAGE_BYTES = 4096
WAL_HEADER_BYTES = 32
FRAME_BYTES = 24 + PAGE_BYTES
LATER = SCHEMAS[-1]._replace(migration="CREATE TABLE extra (x);")


def known(rows: Sequence[Row]) -> list[Row]:
    """Return rows for comparison: with ages in whole seconds."""
    return [row._replace(age=round(row.age)) for row in rows]


DIGESTS_SINCE = 4  # the schema whose log has digests
# By schema version, the tests' own. What a log with digests has is added to the last one.
QUERIES = (
    (
        "SELECT hostname, document, last_update, address, 130 - uptime"
        " FROM node JOIN heard USING (hostname) ORDER BY hostname"
    ),
    (
        "SELECT hostname, document, last_update, address, 130 - max(uptime) FROM ("
        " SELECT hostname, document, last_update, address, uptime FROM node UNION ALL"
        " SELECT hostname, document, heard.last_update, heard.address, heard.uptime"
        " FROM heard JOIN node USING (hostname)) GROUP BY hostname ORDER BY hostname"
    ),
    (
        "SELECT hostname, document, last_update, address, 130 - max(uptime) FROM ("
        " SELECT hostname, document, last_update, address, uptime FROM node UNION ALL"
        " SELECT hostname, document, json_extract(value, '$[1]'), json_extract(value, '$[2]'),"
        " heard_log.uptime - ifnull(json_extract(value, '$[3]'), 0)"
        " FROM heard_log, json_each(hosts) JOIN node ON json_extract(value, '$[0]') = hostname)"
        " GROUP BY hostname ORDER BY hostname"
    ),
    ("SELECT hostname, document, last_update, address, 130 - uptime FROM node ORDER BY hostname"),
)


def nodes_of(fixture: Path) -> list[Row]:
    """Return what is stored in a fixture."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(fixture.read_text("utf-8"))
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        rows = [Row(*columns) for columns in connection.execute(QUERIES[version - 1])]
        return rows if version < DIGESTS_SINCE else [heard(row, connection) for row in rows]


def heard(row: Row, connection: sqlite3.Connection) -> Row:
    """Return a node as it is with what the log has of it."""
    stored = (130 - row.age, row.last_update, row.address)
    times = [stored, *heard_of(connection, row.hostname)]
    uptime, last_update, address = max(times, key=lambda heard: heard[0])
    return row._replace(last_update=last_update, age=130 - uptime, address=address or row.address)


@asynccontextmanager
async def as_killed(path: Path, *, schemas: Sequence[Schema] = SCHEMAS) -> AsyncIterator[Path]:
    """Start a registry on a store; yield the store as a kill right after would leave it."""
    async with open_store(path, schemas=schemas):
        yield copy(path, path.with_name("killed") / path.name)


def copy(path: Path, to: Path) -> Path:
    """Copy a store that is open, with its log, which a kill leaves too."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal", ".lock", ".stamp"):
        if path.with_name(f"{path.name}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{to}{suffix}")
    return to


async def stored(path: Path, *, schemas: Sequence[Schema] = SCHEMAS) -> list[Row]:
    async with open_store(path, schemas=schemas) as (_, rows):
        return known(rows)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", WRITTEN, ids=lambda fixture: fixture.stem)
async def test_a_store_of_an_earlier_release_is_taken_over_with_all_nodes(
    fixture: Path, tmp_path: Path
) -> None:
    path = tmp_path / "r.db"
    write_earlier_store(path, fixture)
    assert backups.check(path) == 41  # also before it is migrated

    assert await stored(path) == nodes_of(fixture)

    async with open_store(path) as (store, _):
        await touch(store, "odd", last_update=7, address="192.0.2.77")
        await store.put(row("web-00.example.com"), ignore)
    found = {row.hostname: row for row in await stored(path)}
    assert len(found) == 41
    assert found["odd"][2:5] == (7, "192.0.2.77", 0)
    assert found["web-00.example.com"] == row("web-00.example.com")
    assert found["web-03.example.com"].age == 30


@pytest.mark.slow
async def test_the_newest_entry_of_a_log_in_json_is_taken_over_unless_the_node_is_newer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.db"
    write_earlier_store(path, EARLIER[2])
    with closing(sqlite3.connect(path)) as connection:
        for uptime, text in (
            (110.0, '[["web-01.example.com",1700000201,"192.0.2.51"]]'),
            # As they were 5 and 90 seconds before: `odd` has changed since.
            (125.0, '[["web-01.example.com",1700000202,"",5.0],["odd",9,"192.0.2.53",90.0]]'),
        ):
            checksum = zlib.crc32(text.encode(), zlib.crc32(repr(uptime).encode()))
            connection.execute(
                "INSERT INTO heard_log (uptime, hosts, checksum) VALUES (?, ?, ?)",
                [uptime, text, checksum],
            )
        connection.commit()
    before = {row.hostname: row for row in nodes_of(EARLIER[2])}

    for _ in range(2):  # read with the old log, then from the migrated store
        found = {row.hostname: row for row in await stored(path)}
        assert found["web-01.example.com"][2:5] == (1_700_000_202, "", 10)
        assert found["odd"] == before["odd"]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", EARLIER, ids=lambda fixture: fixture.stem)
async def test_a_kill_at_any_write_of_a_migration_loses_nothing(
    fixture: Path, tmp_path: Path
) -> None:
    """A kill leaves a prefix of the log, as nothing is written back into the file before its end.

    While the log is written back, it leaves some pages of the file as they are after that.
    """
    path = tmp_path / "s" / "r.db"
    write_earlier_store(path, fixture)
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as reader:  # it keeps the log from being written back
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clock").fetchall()
        async with open_store(path):
            log = path.with_name("r.db-wal").read_bytes()
            assert path.read_bytes() == before
    async with as_killed(path) as killed:
        after = killed.read_bytes()

    frames = (len(log) - WAL_HEADER_BYTES) // FRAME_BYTES
    assert frames > 5
    cuts = [WAL_HEADER_BYTES + FRAME_BYTES * n + more for n in range(frames) for more in (0, 999)]
    for cut in (0, *cuts, len(log)):
        assert await stored(killed_at(tmp_path, before, log[:cut])) == nodes_of(fixture), cut
    for page in range(0, len(after), PAGE_BYTES):
        mixed = after[:page] + before[page : page + PAGE_BYTES] + after[page + PAGE_BYTES :]
        assert await stored(killed_at(tmp_path, mixed, log)) == nodes_of(fixture), page


def killed_at(folder: Path, file: bytes, log: bytes) -> Path:
    """Write a store as it was found after a kill."""
    path = folder / "found.db"
    for suffix in ("-shm", "-wal"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    path.write_bytes(file)
    path.with_name("found.db-wal").write_bytes(log)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("fixture", WRITTEN, ids=lambda fixture: fixture.stem)
async def test_a_kill_right_after_a_migration_leaves_a_store_that_starts(
    fixture: Path, tmp_path: Path
) -> None:
    path, later = tmp_path / "s" / "r.db", [*SCHEMAS, LATER]
    write_earlier_store(path, fixture)

    async with as_killed(path, schemas=later) as killed:
        assert await stored(killed, schemas=later) == nodes_of(fixture)


@pytest.mark.slow
async def test_a_migration_that_is_only_in_the_log_is_not_done_again(tmp_path: Path) -> None:
    path, later = tmp_path / "s" / "r.db", [*SCHEMAS, LATER]
    write_earlier_store(path, EARLIER[0])
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clock").fetchall()
        async with as_killed(path, schemas=later) as killed:
            assert killed.read_bytes()[60:64] == b"\0\0\0\1"  # the version in the file itself

    assert await stored(killed, schemas=later) == nodes_of(EARLIER[0])


@pytest.mark.slow
async def test_an_older_program_refuses_a_newer_store_wherever_its_version_is_written(
    tmp_path: Path,
) -> None:
    path, later = tmp_path / "s" / "r.db", [*SCHEMAS, LATER]
    write_earlier_store(path, EARLIER[0])
    told = f"schema version {len(later)}, this release knows 1 to {len(SCHEMAS)}; it is left as"
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clock").fetchall()
        async with as_killed(path, schemas=later) as killed:
            pass
    for refuse in (backups.check, lambda found: backups.restore(found, tmp_path / "new.db")):
        with pytest.raises(StoreOpenError, match=told):
            refuse(killed)
    with pytest.raises(StoreOpenError, match=told):
        await stored(killed)

    assert told in await start_error(path)  # where an earlier release looks for it
    assert path.read_bytes()[60:64] == len(later).to_bytes(4, "big")


@pytest.mark.slow
@pytest.mark.parametrize("fixture", WRITTEN, ids=lambda fixture: fixture.stem)
async def test_a_backup_of_an_earlier_release_is_restored_into_this_one(
    fixture: Path, tmp_path: Path
) -> None:
    path, backup = tmp_path / "r.db", tmp_path / "backup"
    write_earlier_store(tmp_path / "earlier.db", fixture)
    backups.write_backup(tmp_path / "earlier.db", backup)

    assert backups.restore(backup, path).nodes == 41

    assert await stored(path) == nodes_of(fixture)


async def test_a_damaged_store_of_an_earlier_release_is_refused_and_not_migrated(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.db"
    write_earlier_store(path, EARLIER[0])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE node SET checksum = 1 WHERE hostname = 'odd'")
        connection.commit()

    assert "corrupt: the row of 'odd'" in await start_error(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE heard_log SET hosts = replace(hosts, '17', '18')",
        "UPDATE heard_log SET uptime = uptime + 1",
    ],
)
async def test_a_damaged_log_in_json_is_refused_and_not_migrated(
    change: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.db"
    write_earlier_store(path, EARLIER[2])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()

    assert "corrupt: a row of the table heard_log" in await start_error(path)


@pytest.mark.slow
async def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    write_earlier_store(path, EARLIER[0])
    broken = LATER._replace(migration="CREATE TABLE extra (x); NONSENSE;")

    with pytest.raises(StoreOpenError):
        await stored(path, schemas=[*SCHEMAS, broken])

    assert path.read_bytes()[60:64] == b"\0\0\0\1"
    assert await stored(path) == nodes_of(EARLIER[0])


def test_there_is_a_store_of_each_schema() -> None:
    assert len(WRITTEN) == len(SCHEMAS)
