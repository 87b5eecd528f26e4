"""A copy refuses what it cannot read, and replaces nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.copying import copy
from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.copies import Copy, CutOff, ignore_text
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.registry.stores.used_stores import ageless, contents, fill, refusal, used

pytestmark = pytest.mark.slow


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
