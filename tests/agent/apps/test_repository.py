"""What is asked for is held from the moment of asking, whatever the disk does."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from agent.apps.repository import AppRepository
from agent.model import App, Change
from agent.state.store import Store, StoreError

APP = App(
    name="web", image="web:1", ssh_port=20001, http_port=20002, cpu=100, memory=64, created_at=""
)


class FullStore(Store):
    """A real store that takes nothing while it is full."""

    full = False

    async def begin(self, change: Change, *, undone: str | None = None) -> None:
        if self.full:
            raise StoreError("full")
        await super().begin(change, undone=undone)


async def test_a_port_is_held_before_it_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())

    writing = asyncio.create_task(repository.put(APP))
    await asyncio.sleep(0)
    held = repository.port_holder(20002, other_than="other")
    await writing

    assert held == "web"
    assert repository.port_holder(20001, other_than="other") == "web"
    assert repository.port_holder(20001, other_than="web") is None
    await repository.close()


async def test_a_change_takes_the_place_of_one_that_broke_off_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    store = FullStore(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())
    left = Change(id="c1", app="web", operation="create", by="ops", since=1, target=APP)
    await repository.begin(left)

    await repository.begin(Change(id="c2", app="web", operation="delete", by="ops", since=2))
    assert repository.undone("c1")
    store.full = True
    with pytest.raises(StoreError):
        await repository.begin(left)
    assert [change.id for change in repository.changes()] == ["c2"]
    await repository.close()

    again = await Store(tmp_path / "agent.db").open()
    assert ([change.id for change in again.changes], again.undone) == (["c2"], ["c1"])


async def test_a_database_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    store = Store(path)
    await store.open()
    await store.put(APP)
    await store.close()
    with sqlite3.connect(path) as old:
        old.executescript("DROP TABLE undone; PRAGMA user_version = 1;")
    old.close()

    store = Store(path)
    kept = await store.open()

    assert (kept.apps, kept.undone) == ([APP], [])
    await store.close()
