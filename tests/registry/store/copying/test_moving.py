"""A copy takes all nodes of a store along, and registries then refuse that store."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest

from registry.store.copying import copy
from registry.store.protocol import CopySource, CopyTarget, Snapshot, StoreBackend, StoreName
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.copies import Copy, ignore_text
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.registry.stores.used_stores import (
    OTHER,
    AdvancedClock,
    ageless,
    contents,
    fill,
    refusal,
    used,
)

pytestmark = pytest.mark.slow


async def test_all_that_a_registry_does_until_it_ends_is_in_the_copy(
    source: StoreBackend, target: StoreBackend
) -> None:
    clock = AdvancedClock()
    async with used(source, clock) as (store, _):
        await store.confirm()
        for name in ("changed", "deleted", "heard", "old"):
            await store.put(row(name), ignore)
        running = Copy(source, target)
        await running.follows()
        clock.added = 500.0
        await store.put(row("changed", OTHER), ignore)
        await store.put(row("new", OTHER), ignore)
        await store.delete("deleted", ignore)
        await touch(store, "heard", last_update=1_800_000_000, address="192.0.2.9")

    assert await running.ended() == 4
    async with used(target) as (copied, rows):
        assert ageless(rows) == [
            row("changed", OTHER),
            row("heard")._replace(last_update=1_800_000_000, address="192.0.2.9"),
            row("new", OTHER),
            row("old"),
        ]
        ages = {one.hostname: one.age for one in rows}
        assert ages["old"] == pytest.approx(500, abs=10)
        assert max(ages[name] for name in ("changed", "heard", "new")) < 10
        assert copied.continues


async def test_registries_refuse_what_was_moved_away_and_it_can_be_moved_back(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a", "b")
    before = ageless(await contents(source))
    await Copy(source, target).ended()

    assert "was moved" in await refusal(source)

    async with used(target) as (store, _):
        await store.put(row("c"), ignore)
        await store.delete("b", ignore)
    await Copy(target, source).ended()
    assert "was moved" in await refusal(target)
    async with used(source) as (store, rows):
        assert ageless(rows) == [before[0], row("c")]
        assert store.continues


class Restarted:
    """A source whose registry is restarted while a copy follows, and stopped later."""

    name = StoreName("restarted", "restarted")
    was_moved = False

    def __init__(self) -> None:
        self.looks: list[int] = []

    async def users(self) -> int:
        self.looks.append([1, 0, 1, 0, 0][len(self.looks)])
        return self.looks[-1]

    async def take(self, _target: StoreName) -> bool:
        return True

    async def snapshot(self) -> Snapshot:
        return Snapshot([row("a")], 1.0, continues=True)

    async def retire(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def copy_source(self) -> AsyncIterator[CopySource]:
        yield self

    def copy_target(
        self, source: StoreName, *, resume: bool
    ) -> AbstractAsyncContextManager[CopyTarget]:
        raise NotImplementedError


async def test_a_restart_of_the_registry_does_not_end_the_copy(tmp_path: Path) -> None:
    source = Restarted()

    await copy(
        source,
        SqliteBackend(tmp_path / "target.db"),
        ignore_text,
        unused_seconds=0.04,
        look_seconds=0.05,
    )

    assert source.looks == [1, 0, 1, 0, 0]


async def test_a_backup_is_copied_and_stays_a_backup(target: StoreBackend, tmp_path: Path) -> None:
    store = SqliteBackend(tmp_path / "store.db")
    await fill(store, "a", "b")
    await asyncio.to_thread(store.backup, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()

    assert await Copy(SqliteBackend(tmp_path / "backup"), target).ended() == 2

    assert (tmp_path / "backup").read_bytes() == content
    async with used(target) as (copied, rows):
        assert ageless(rows) == [row("a"), row("b")]
        assert not copied.continues  # what a backup lacks may have been acknowledged


async def test_a_file_without_the_lock_beside_it_is_moved_away_too(tmp_path: Path) -> None:
    """As after it was moved by hand."""
    source, target = [SqliteBackend(tmp_path / f"{name}.db") for name in ("source", "target")]
    await fill(source, "a")
    (tmp_path / "source.db.lock").unlink()

    await Copy(source, target).ended()

    assert "was moved" in await refusal(source)


async def test_a_store_that_was_moved_away_can_be_backed_up_and_put_back(
    source: StoreBackend, target: StoreBackend, tmp_path: Path
) -> None:
    await fill(source, "a", "b")
    await Copy(source, target).ended()

    assert await asyncio.to_thread(source.backup, tmp_path / "backup") == 2
    await asyncio.to_thread(source.restore, tmp_path / "backup")

    assert ageless(await contents(source)) == [row("a"), row("b")]


async def test_a_file_that_is_locked_for_a_while_is_waited_for(tmp_path: Path) -> None:
    source = SqliteBackend(tmp_path / "source.db")
    await fill(source, "a")
    with closing(sqlite3.connect(tmp_path / "source.db")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE").close()
        other.execute("UPDATE clock SET uptime = uptime").close()
        other.commit()
        running = Copy(source, SqliteBackend(tmp_path / "target.db"))
        assert await running.is_running_after(3)  # SQLite itself waits for 2 s

    assert await running.ended() == 1
