"""A copy has all nodes of a store that no registry uses, and replaces nothing."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend
from tests.support.daemons import FreePort
from tests.support.registry.nats.buckets import backend_at, once_unused
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import touch
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.registry.stores.used_stores import (
    OTHER,
    AdvancedClock,
    ageless,
    contents,
    continues,
    fill,
    used,
)

pytestmark = pytest.mark.slow
NewStore = Callable[[str], StoreBackend]
KINDS = ["file", pytest.param("bucket", marks=pytest.mark.real)]


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


async def copy(source: StoreBackend, target: StoreBackend) -> int:
    """Copy; return how many nodes."""
    rows = await asyncio.to_thread(once_unused, source.snapshot)
    await asyncio.to_thread(once_unused, partial(target.fill, rows))
    return len(rows)


async def test_a_copy_has_all_nodes_as_old_as_they_were_and_is_not_current(
    source: StoreBackend, target: StoreBackend
) -> None:
    clock = AdvancedClock()
    async with used(source, clock) as (store, _):
        await store.confirm()
        for name in ("changed", "deleted", "heard", "old"):
            await store.put(row(name), ignore)
        clock.added = 500.0
        await store.put(row("changed", OTHER), ignore)
        await store.delete("deleted", ignore)
        await touch(store, "heard", last_update=1_800_000_000, address="192.0.2.9")

    assert await copy(source, target) == 3

    async with used(target) as (copied, rows):
        assert ageless(rows) == [
            row("changed", OTHER),
            row("heard")._replace(last_update=1_800_000_000, address="192.0.2.9"),
            row("old"),
        ]
        ages = {one.hostname: one.age for one in rows}
        assert ages["old"] == pytest.approx(500, abs=10)
        assert max(ages[name] for name in ("changed", "heard")) < 10
        await copied.put(row("new"), ignore)
    # A registry may have used the source again before this start.
    assert not await continues(target)
    assert len(await contents(target)) == 4
    assert len(await contents(source)) == 3


async def test_a_backup_of_a_file_is_copied_and_stays_as_it_is(
    target: StoreBackend, tmp_path: Path
) -> None:
    store = SqliteBackend(tmp_path / "store.db")
    await fill(store, "a", "b")
    folder = tmp_path / "backups"
    folder.mkdir()
    await asyncio.to_thread(store.backup, folder / "backup")
    content = (folder / "backup").read_bytes()

    assert await copy(SqliteBackend(folder / "backup"), target) == 2

    assert [each.read_bytes() for each in folder.iterdir()] == [content]
    assert ageless(await contents(target)) == [row("a"), row("b")]


async def test_a_store_that_a_registry_uses_is_neither_copied_nor_copied_into(
    source: StoreBackend,
) -> None:
    async with used(source) as (store, _):
        await store.put(row("a"), ignore)
        for act in (source.snapshot, partial(source.fill, [row("b")])):
            with pytest.raises(StoreOpenError, match=r"in use by .*registry.* stop"):
                await asyncio.to_thread(act)
        await store.put(row("c"), ignore)
    assert ageless(await contents(source)) == [row("a"), row("c")]


async def test_a_store_with_other_nodes_is_replaced_by_no_copy(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a", "b")
    async with used(target) as (store, _):
        await store.put(row("a", OTHER), ignore)

    with pytest.raises(StoreOpenError, match="a copy replaces nothing"):
        await copy(source, target)

    assert ageless(await contents(target)) == [row("a", OTHER)]


@pytest.mark.real
async def test_a_copy_into_a_bucket_that_was_interrupted_is_completed(
    servers: NatsCluster, tmp_path: Path
) -> None:
    source = SqliteBackend(tmp_path / "source.db")
    target = backend_at(servers.url("broken-off"), servers.options())
    await fill(source, "a", "b", "c")
    await fill(target, "a", "c")

    assert await copy(source, target) == 3

    async with used(target) as (_, rows):
        assert ageless(rows) == [row("a"), row("b"), row("c")]
    assert not await continues(target)


async def test_what_does_not_exist_is_not_copied_nor_made(source: StoreBackend) -> None:
    with pytest.raises(StoreOpenError, match="does not exist"):
        await asyncio.to_thread(source.snapshot)
    assert await asyncio.to_thread(source.check) is None


def test_a_file_of_another_program_or_a_later_release_is_not_copied(tmp_path: Path) -> None:
    asyncio.run(fill(SqliteBackend(tmp_path / "later.db"), "a"))
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
            SqliteBackend(path).snapshot()
        with pytest.raises(StoreOpenError, match="a copy replaces nothing"):
            SqliteBackend(path).fill([row("a")])
        assert path.read_bytes() == content


def test_a_file_that_cannot_be_made_is_reported_and_no_draft_is_left(tmp_path: Path) -> None:
    with pytest.raises(StoreOpenError, match=r"the directory .*none does not exist"):
        SqliteBackend(tmp_path / "none" / "target.db").fill([row("a")])
    with pytest.raises(StoreOpenError, match="cannot be made"):
        SqliteBackend(tmp_path / "target.db").fill([row("a"), row("a")])
    assert [each.name for each in tmp_path.iterdir()] == ["target.db.lock"]
