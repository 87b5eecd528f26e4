"""The SQLite store alone: what it keeps, and how it rejects what is not its own."""

import asyncio
import ctypes
import ctypes.util
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreUnreachable
from registry.store.sqlite.store import MAX_SHARED_DOCUMENT_BYTES, SqliteStore
from tests.support.machine.clocks import ManualClock
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.sqlite_store import (
    DOCUMENT,
    Batches,
    fill,
    hostnames_of,
    ignore,
    open_store,
    row,
    start_error,
)

# Around the powers of two, for which statements have room.
SIZES = [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129, 193, 250]
# Most share a statement. So does the second to last, and the last one does not.
DOCUMENTS = [
    *[DOCUMENT] * 4,
    DOCUMENT.ljust(MAX_SHARED_DOCUMENT_BYTES),
    DOCUMENT.ljust(MAX_SHARED_DOCUMENT_BYTES + 1),
]

LARGE_BYTES = 200_000
# The cached pages, and one large document.
MAX_KEPT_BYTES = 5_000_000


async def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    await fill(tmp_path / "r.db", "a")

    assert (tmp_path / "r.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_what_queues_while_a_batch_is_written_is_one_batch(tmp_path: Path) -> None:
    batches = Batches()
    async with open_store(tmp_path / "r.db", batches=batches) as (store, _):
        await asyncio.gather(*[store.put(row(f"h{i}"), ignore) for i in range(600)])

    assert sum(batches) == 600
    assert max(batches) == 250
    assert len(batches) <= 4


@pytest.mark.slow
async def test_a_batch_of_any_size_is_kept_whole(tmp_path: Path) -> None:
    path, batches = tmp_path / "r.db", Batches()
    kept: dict[str, bytes] = {}
    async with open_store(path, batches=batches) as (store, _):
        for size in SIZES:
            added = {f"h{size}-{i}": DOCUMENTS[-1 - i % len(DOCUMENTS)] for i in range(size)}
            gone = sorted(kept)[:size]
            await asyncio.gather(*[store.put(row(*each), ignore) for each in added.items()])
            await asyncio.gather(*[store.delete(name, ignore) for name in gone])
            kept = {name: kept[name] for name in kept if name not in gone} | added

    assert set(SIZES) <= set(batches)
    async with open_store(path) as (_, rows):
        assert [*rows] == [row(*each) for each in sorted(kept.items())]


@pytest.mark.slow
async def test_sqlite_keeps_no_copies_of_large_documents_that_are_written(tmp_path: Path) -> None:
    sqlite = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
    sqlite.sqlite3_memory_used.restype = ctypes.c_int64
    used: list[int] = []
    async with open_store(tmp_path / "r.db") as (store, _):
        for document in (DOCUMENT, DOCUMENT.ljust(LARGE_BYTES)):
            for size in (1, 2, 4, 8, 16, 32, 64):
                rows = [row(f"h{i}", document) for i in range(size)]
                await asyncio.gather(*[store.put(each, ignore) for each in rows])
            used.append(sqlite.sqlite3_memory_used())

    assert used[0] > 0
    assert used[1] - used[0] < MAX_KEPT_BYTES


@pytest.mark.slow
async def test_a_touch_of_a_host_that_is_not_kept_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        await touch(store, "ghost")
    async with open_store(path) as (_, rows):
        assert rows == []


@pytest.mark.slow
async def test_a_crash_between_commit_and_answer_is_harmless_to_repeat(tmp_path: Path) -> None:
    path, crashed = tmp_path / "r.db", tmp_path / "crashed"
    crashed.mkdir()
    async with open_store(path) as (store, _):
        await store.put(row("a"), ignore)
        for name in ("r.db", "r.db-wal", "r.db-shm"):
            shutil.copy(tmp_path / name, crashed)

    for _ in range(2):
        async with open_store(crashed / "r.db") as (store, rows):
            assert hostnames_of(rows) == ["a"]
            await store.put(row("a"), ignore)


async def test_the_time_that_a_start_takes_to_read_the_nodes_makes_none_older(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "r.db", ManualClock()
    await fill(path, "a")

    store = SqliteStore(path=path, monotonic=clock, observe=Batches().observe)
    clock.now += 60
    (before,) = (await store.load()).rows
    clock.now += 5
    await store.close()

    async with open_store(path) as (_, (after,)):
        assert (before.age, after.age) == (0, 5)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("UPDATE node SET document = CAST(document AS TEXT)", "corrupt: the row of 'a'"),
        ("UPDATE node SET last_update = 1.5", "corrupt: the row of 'a'"),
        ("UPDATE node SET uptime = x'00'", "corrupt: the row of 'a'"),
        ("UPDATE node SET address = x'00'", "corrupt: the row of 'a'"),
        ("UPDATE clock SET uptime = x'00'", "the table clock is corrupt"),
    ],
)
async def test_a_column_that_is_no_longer_of_its_type_is_rejected(
    change: str, reported: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.db"
    await fill(path, "a")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()

    assert reported in await start_error(path)


async def test_a_program_that_locks_the_store_is_named_and_memory_can_be_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnreachable, match=re.escape(f"(fuser {path} names it)")):
                await store.put(row("a"), ignore)
        await store.put(row("a"), ignore)


@pytest.mark.parametrize("name", ["r.db", "r.db-wal"])
async def test_a_store_takes_no_changes_while_its_file_or_its_log_is_elsewhere(
    tmp_path: Path, name: str
) -> None:
    path, file, elsewhere = tmp_path / "r.db", tmp_path / name, tmp_path / "elsewhere"
    async with open_store(path) as (store, _):
        await store.put(row("a"), ignore)
        file.rename(elsewhere)
        with pytest.raises(StoreUnreachable, match="was removed, renamed or replaced"):
            await store.put(row("b"), ignore)
        file.write_bytes(b"another file")
        with pytest.raises(StoreUnreachable, match="was removed, renamed or replaced"):
            await store.put(row("b"), ignore)
        elsewhere.rename(file)
        await store.put(row("c"), ignore)
    async with open_store(path) as (_, rows):
        assert hostnames_of(rows) == ["a", "c"]
