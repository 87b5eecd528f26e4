"""Files that the store does not take, and leaves as they are."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreOpenError, StoreVersionError
from registry.store.sqlite.database import connect, sqlite_errors
from tests.support.registry.stores.sqlite_store import (
    fill,
    ignore,
    open_store,
    row,
    start_error,
)


async def test_a_text_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    for content in (b"hello", b"", b"x" * 5000, b"SQLite format 3\0"):
        path.write_bytes(content)

        assert "is not a SQLite database" in await start_error(path)


async def test_another_programs_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")

    assert "another program" in await start_error(path)


@pytest.mark.parametrize("version", [99, 3, -1])
async def test_a_store_of_another_schema_is_rejected(tmp_path: Path, version: int) -> None:
    path = tmp_path / "r.db"
    await fill(path, "a")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()

    with pytest.raises(StoreVersionError, match=f"has schema version {version}, .*run the rel"):
        async with open_store(path):
            pass

    assert path.read_bytes() == before


def test_a_full_disk_is_reported_without_the_advice_to_restore_a_backup() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA max_page_count = 1")

        with pytest.raises(StoreOpenError) as caught, sqlite_errors(Path("r.db")):
            connection.execute("CREATE TABLE t (x)")

    assert str(caught.value) == "r.db cannot be used: the disk is full; make room"


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["cut", "page", "bit", "header"])
async def test_a_corrupt_file_is_rejected(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "r.db"
    await fill(path, *[f"host-{i:04}" for i in range(500)])
    content = bytearray(path.read_bytes())
    if harm == "cut":
        del content[len(content) // 2 :]
    elif harm == "page":
        content[4096 * 3 : 4096 * 4] = bytes(range(256)) * 16
    elif harm == "bit":
        # Of each document: the file may also have places from which a row was moved.
        content = content.replace(b'{"labels":["a"]', b'{"labels":["c"]')
    else:
        content[16:24] = b"\xff" * 8
    path.write_bytes(content)

    message = await start_error(path)

    assert str(path) in message
    assert "restore" in message


async def test_a_second_process_is_rejected_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        with pytest.raises(StoreOpenError, match="in use by another process"):
            async with open_store(path):
                pass
        await store.put(row("a"), ignore)


@pytest.mark.slow
async def test_a_file_that_another_program_has_locked_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    await fill(path, "a")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreOpenError, match="locked by another process"):
            async with open_store(path):
                pass


async def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreOpenError, match="cannot be written"):
        async with open_store(tmp_path / "none" / "r.db"):
            pass


async def test_a_store_that_may_not_be_written_is_not_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    await fill(path, "h1")

    with (
        pytest.raises(StoreOpenError, match="must be able to write the file") as raised,
        sqlite_errors(path),
        closing(connect(path, mode="ro")) as connection,
    ):
        connection.execute("DELETE FROM node")

    assert "restore" not in str(raised.value)
