"""The SQLite store alone: what it keeps, and how it refuses what is not its own."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreOpenError, StoreUnavailable
from registry.store.protocol import Heard, Row
from registry.store.sqlite import backups
from tests.support.registry.sqlite_store import (
    DOCUMENT,
    Batches,
    ManualClock,
    fill,
    hostnames_of,
    ignore,
    open_store,
    row,
)


async def test_what_is_put_is_there_after_a_restart_sorted_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    await fill(path, "b", "a", "c")

    async with open_store(path) as (_, rows):
        assert rows == [row("a"), row("b"), row("c")]


async def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    await fill(tmp_path / "r.db", "a")

    assert (tmp_path / "r.db").stat().st_mode & 0o777 == 0o600


async def test_operations_take_effect_in_the_order_of_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        await asyncio.gather(
            store.put(row("a", b'{"labels":["1"],"kv":{}}'), ignore),
            store.put(row("a", b'{"labels":["2"],"kv":{}}'), ignore),
            store.put(row("b"), ignore),
            store.delete("b", ignore),
            store.touch([Heard("b", 5, "x"), Heard("a", 5, "x")], ignore),
            store.delete("c", ignore),
            store.put(row("c"), ignore),
        )

    async with open_store(path) as (_, rows):
        assert hostnames_of(rows) == ["a", "c"]
        assert rows[0].document == b'{"labels":["2"],"kv":{}}'
        assert (rows[0].last_update, rows[0].address) == (5, "x")


async def test_what_queues_while_a_batch_is_written_is_one_batch(tmp_path: Path) -> None:
    batches = Batches()
    async with open_store(tmp_path / "r.db", batches=batches) as (store, _):
        await asyncio.gather(*[store.put(row(f"h{i}"), ignore) for i in range(2500)])

    assert sum(batches) == 2500
    assert max(batches) == 1000
    assert len(batches) <= 4


async def test_a_touch_of_a_host_that_is_not_kept_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        await store.touch([Heard("ghost", 5, "x")], ignore)
    async with open_store(path) as (_, rows):
        assert rows == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM heard").fetchall() == []


async def test_one_row_that_cannot_be_stored_does_not_hurt_the_others(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    told: list[Exception | None] = []
    async with open_store(path) as (store, _):
        poison = Row("bad", DOCUMENT, 2**70, "x")
        outcomes = await asyncio.gather(
            store.put(row("a"), told.append),
            store.put(poison, told.append),
            store.put(row("b"), told.append),
            return_exceptions=True,
        )

    assert [outcome is None for outcome in outcomes] == [True, False, True]
    assert [error is None for error in told] == [True, False, True]
    async with open_store(path) as (_, rows):
        assert hostnames_of(rows) == ["a", "b"]


async def test_cancelling_who_waits_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    told: list[Exception | None] = []
    async with open_store(path) as (store, _):
        future = store.put(row("a"), told.append)
        future.cancel()
        await store.put(row("b"), told.append)

    assert told == [None, None]
    async with open_store(path) as (_, rows):
        assert hostnames_of(rows) == ["a", "b"]


async def test_closing_writes_what_is_queued_and_takes_no_more(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        waiting = [store.put(row(f"h{i}"), ignore) for i in range(1500)]
        await store.close()
        assert all(future.done() for future in waiting)
        with pytest.raises(StoreUnavailable):
            await store.put(row("late"), ignore)

    async with open_store(path) as (_, rows):
        assert len(rows) == 1500


async def test_ages_do_not_count_the_time_in_which_no_registry_ran(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    uptime = ManualClock()
    async with open_store(path, uptime=uptime) as (store, _):
        await store.put(row("old"), ignore)
        uptime.now += 60
        await store.put(row("young"), ignore)
        await store.touch([], ignore)
        uptime.now += 30
    uptime.now += 1_000_000

    async with open_store(path, uptime=uptime) as (store, rows):
        assert {row.hostname: row.age for row in rows} == {"old": 90, "young": 30}
        uptime.now += 5
    async with open_store(path, uptime=uptime) as (_, rows):
        assert {row.hostname: row.age for row in rows} == {"old": 95, "young": 35}


async def test_a_backup_of_a_store_in_use_is_whole_and_can_be_restored(tmp_path: Path) -> None:
    path, copy = tmp_path / "r.db", tmp_path / "copy"
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row(f"h{i}"), ignore) for i in range(300)])
        assert backups.copy(path, copy) == 300
        await store.delete("h1", ignore)
        with pytest.raises(StoreOpenError, match="in use"):
            backups.restore(copy, path)

    assert backups.restore(copy, path).nodes == 300
    async with open_store(path) as (_, rows):
        assert len(rows) == 300
    assert (tmp_path / "r.db.before-restore").exists()


async def test_a_backup_replaces_nothing_and_of_a_broken_store_there_is_none(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "r.db", tmp_path / "copy"
    await fill(path, "a")
    backups.copy(path, copy)
    with pytest.raises(StoreOpenError, match="exists"):
        backups.copy(path, copy)
    broken = bytearray(copy.read_bytes())
    broken[broken.index(b'{"labels":["a"]') + 12] ^= 1
    (tmp_path / "broken").write_bytes(broken)
    with pytest.raises(StoreOpenError, match="corrupt"):
        backups.restore(tmp_path / "broken", path)
    assert backups.check(path) == 1


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
