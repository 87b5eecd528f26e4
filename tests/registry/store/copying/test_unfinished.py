"""Registries refuse an unfinished copy, and the same copy can be gone on with."""

from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.copying import copy
from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.copies import Copy, CutOff, ignore_text
from tests.support.registry.stores.sqlite_store import ignore, row
from tests.support.registry.stores.used_stores import OTHER, ageless, contents, fill, refusal, used

pytestmark = pytest.mark.slow


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


async def test_a_copy_that_fails_leaves_its_source_to_registries(
    source: StoreBackend, target: StoreBackend
) -> None:
    await fill(source, "a")
    with pytest.raises(CutOff.Error):
        await copy(source, CutOff(target, at="write"), ignore_text, unused_seconds=0)

    assert ageless(await contents(source)) == [row("a")]
    assert "is an unfinished copy" in await refusal(target)


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
