"""Copies from store to store, of each kind, while the first one is used."""

import asyncio
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.clock import AgeClock
from registry.store.conformance import Followed
from registry.store.copying import copy
from registry.store.protocol import (
    CopySource,
    CopyTarget,
    Heard,
    NodeStore,
    Row,
    Snapshot,
    StoreBackend,
    StoreName,
)
from registry.store.sqlite.backend import SqliteBackend
from tests.support.daemons import FreePort
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.copies import Copy, CutOff
from tests.support.registry.stores.sqlite_store import Batches, ignore, row

pytestmark = pytest.mark.slow

NewStore = Callable[[str], StoreBackend]
BUCKET = pytest.param("bucket", marks=pytest.mark.real)
KINDS = ["file", BUCKET]
OTHER = b'{"labels":["b"],"kv":{"c":"d"}}'


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a NATS server."""
    with NatsCluster(folder=tmp_path_factory.mktemp("nats"), free_port=free_port) as running:
        yield running


def maker(kind: str, request: pytest.FixtureRequest, folder: Path) -> NewStore:
    """Return what names stores of a kind, of the test's own."""
    if kind == "file":
        return lambda name: SqliteBackend(folder / f"{name}.db")
    servers = request.getfixturevalue("servers")
    test = re.sub(r"\W", "_", request.node.name)[-50:]
    return lambda name: backend_at(servers.url(f"{test}-{name}"), servers.options())


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Return a store to copy from."""
    return maker(request.param, request, tmp_path)("source")


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Return a store to copy into."""
    return maker(request.param, request, tmp_path)("target")


class AdvancedClock:
    """Real time, and what the test adds."""

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


@asynccontextmanager
async def used(
    backend: StoreBackend, clock: AdvancedClock | None = None
) -> AsyncIterator[tuple[NodeStore, list[Row]]]:
    """Use a store as a registry does."""
    store = backend.open(clock=AgeClock(clock or AdvancedClock()), observe=Batches().observe)
    try:
        rows = await store.load()
        store.follow(Followed())
        yield store, rows
    finally:
        await store.close()


async def contents(backend: StoreBackend) -> list[Row]:
    async with used(backend) as (_, rows):
        return rows


async def fill(backend: StoreBackend, *hostnames: str) -> None:
    async with used(backend) as (store, _):
        await store.confirm()
        await asyncio.gather(*[store.put(row(name), ignore) for name in hostnames])


def ageless(rows: list[Row]) -> list[Row]:
    return [one._replace(age=0.0) for one in rows]


async def refusal(backend: StoreBackend) -> str:
    """Return why a registry does not start on a store."""
    with pytest.raises(StoreOpenError) as caught:
        await contents(backend)
    return str(caught.value)


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
        await store.touch([Heard("heard", 1_800_000_000, "192.0.2.9")], ignore)

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


async def test_registries_refuse_an_unfinished_copy_and_it_can_be_gone_on_with(
    source: StoreBackend, target: StoreBackend
) -> None:
    async with used(source) as (store, _):
        await store.put(row("a"), ignore)
        await store.put(row("b"), ignore)
        running = Copy(source, target)
        await running.follows()
        await running.cancel()
        assert "is an unfinished copy" in await refusal(target)
        await store.put(row("a", OTHER), ignore)
        await store.delete("b", ignore)
        with pytest.raises(StoreOpenError, match="is an unfinished copy"):
            await Copy(target, source).ended()

    await Copy(source, target).ended()

    assert ageless(await contents(target)) == [row("a", OTHER)]


async def test_a_copy_that_is_cut_off_before_the_end_leaves_nothing_to_use_and_is_gone_on_with(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a")
    with pytest.raises(CutOff.Error):
        await copy(source, CutOff(target), ignore_text, unused_seconds=0)

    assert "was moved" in await refusal(source)
    assert "is an unfinished copy" in await refusal(target)

    await Copy(source, target).ended()
    assert ageless(await contents(target)) == [row("a")]


async def test_a_copy_that_is_killed_before_its_last_changes_are_written_is_continued(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a")
    async with source.copy_source() as old, target.copy_target(old.name, resume=False) as new:
        assert await old.take(new.name)
        await old.retire()  # nothing lets registries use it again, as after a kill

    assert "was moved" in await refusal(source)
    assert "is an unfinished copy" in await refusal(target)

    await Copy(source, target).ended()
    assert ageless(await contents(target)) == [row("a")]
    assert "was moved" in await refusal(source)


def ignore_text(_text: str) -> None:
    """Say nothing."""


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


async def test_a_copy_that_fails_leaves_its_source_to_registries(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a")
    with pytest.raises(CutOff.Error):
        await copy(source, CutOff(target, at="write"), ignore_text, unused_seconds=0)

    assert ageless(await contents(source)) == [row("a")]
    assert "is an unfinished copy" in await refusal(target)


async def test_what_was_moved_is_copied_into_nothing_but_its_unfinished_copy(
    source: StoreBackend, target: StoreBackend, tmp_path: Path
) -> None:
    await fill(source, "a")
    await Copy(source, target).ended()
    with pytest.raises(StoreOpenError, match="moved"):
        await Copy(source, SqliteBackend(tmp_path / "third.db")).ended()
    with pytest.raises(StoreOpenError, match="moved"):
        await Copy(source, target).ended()
    assert ageless(await contents(target)) == [row("a")]


async def test_an_unfinished_copy_is_continued_from_no_other_store(
    source: StoreBackend, target: StoreBackend, tmp_path: Path
) -> None:
    await fill(source, "a")
    with pytest.raises(CutOff.Error):
        await copy(source, CutOff(target, at="write"), ignore_text, unused_seconds=0)
    other = SqliteBackend(tmp_path / "other.db")
    await fill(other, "b")

    with pytest.raises(StoreOpenError, match=f"an unfinished copy of {source}, not of {other}"):
        await Copy(other, target).ended()

    await Copy(source, target).ended()
    assert ageless(await contents(target)) == [row("a")]
    assert ageless(await contents(other)) == [row("b")]


async def test_what_was_moved_is_copied_into_no_earlier_copy_of_it(
    source: StoreBackend, target: StoreBackend, tmp_path: Path
) -> None:
    await fill(source, "a")
    earlier = SqliteBackend(tmp_path / "earlier.db")
    with pytest.raises(CutOff.Error):
        await copy(source, CutOff(earlier, at="write"), ignore_text, unused_seconds=0)
    await Copy(source, target).ended()

    with pytest.raises(StoreOpenError, match=f"{source} was moved to {target}, not to {earlier}"):
        await Copy(source, earlier).ended()

    assert "is an unfinished copy" in await refusal(earlier)


async def test_a_store_with_nodes_is_replaced_by_no_copy(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a")
    await fill(target, "b")

    with pytest.raises(StoreOpenError, match="a copy replaces nothing"):
        await Copy(source, target).ended()

    assert ageless(await contents(target)) == [row("b")]
    assert ageless(await contents(source)) == [row("a")]


async def test_a_store_that_a_registry_uses_is_not_copied_into(
    target: StoreBackend, tmp_path: Path
) -> None:
    source = SqliteBackend(tmp_path / "source.db")
    await fill(source, "a")
    async with used(target) as (store, _):
        with pytest.raises(StoreOpenError, match="in use"):
            await Copy(source, target).ended()
        await store.put(row("b"), ignore)


async def test_what_does_not_exist_is_not_copied_nor_made(
    source: StoreBackend, target: StoreBackend
) -> None:
    with pytest.raises(StoreOpenError, match="does not exist"):
        await Copy(source, target).ended()
    for backend in (source, target):
        assert await asyncio.to_thread(backend.check) is None


async def test_a_store_is_not_copied_into_itself(source: StoreBackend) -> None:
    await fill(source, "a")
    with pytest.raises(StoreOpenError, match="into itself"):
        await Copy(source, source).ended()


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


def test_a_file_of_another_program_or_a_later_release_is_not_copied(tmp_path: Path) -> None:
    asyncio.run(fill(SqliteBackend(tmp_path / "later.db"), "a"))
    filled = SqliteBackend(tmp_path / "filled.db")
    asyncio.run(fill(filled, "a"))
    for name, statement in (
        ("later", "PRAGMA user_version = 99"),
        ("other", "CREATE TABLE t (x)"),
    ):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute(statement).close()
    (tmp_path / "text.db").write_text("nothing of the kind, but long enough" * 9)
    for name, reason in (
        ("later", "has schema version 99"),
        ("other", "is a database of another program"),
        ("text", "is not a SQLite database"),
    ):
        path = tmp_path / f"{name}.db"
        content = path.read_bytes()
        with pytest.raises(StoreOpenError, match=reason):
            asyncio.run(Copy.of(SqliteBackend(path), SqliteBackend(tmp_path / f"to-{name}.db")))
        with pytest.raises(
            StoreOpenError, match=r"a copy replaces nothing|is not a SQLite database"
        ):
            asyncio.run(Copy.of(filled, SqliteBackend(path)))
        assert path.read_bytes() == content


def test_a_missing_folder_and_one_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    source = SqliteBackend(tmp_path / "source.db")
    asyncio.run(fill(source, "a"))
    with pytest.raises(StoreOpenError, match=r"the directory .*none does not exist"):
        asyncio.run(Copy.of(source, SqliteBackend(tmp_path / "none" / "target.db")))
    (tmp_path / "file").touch()
    with pytest.raises(StoreOpenError, match="cannot be written: Not a directory"):
        asyncio.run(Copy.of(source, SqliteBackend(tmp_path / "file" / "target.db")))
    assert asyncio.run(contents(source))
