"""What is asked for is held from the moment of asking, whatever the disk does."""

import asyncio
from pathlib import Path

import pytest

from agent.apps.repository import AppRepository
from agent.model import App, CreateEntry, DeleteEntry, EntryHeader, JournalEntry, OperationKind
from agent.state.store import Store, StoreError

APP = App(
    name="web", image="web:1", ssh_port=20001, http_port=20002, cpu=100, memory=64, created_at=""
)


class FullStore(Store):
    """A real store that takes nothing while it is full."""

    full = False

    async def begin(self, entry: JournalEntry, *, undone: str | None = None) -> None:
        if self.full:
            raise StoreError("full")
        await super().begin(entry, undone=undone)


def header(id_: str, operation: OperationKind) -> EntryHeader:
    return EntryHeader(id=id_, operation=operation, app="web", by="ops", since=1)


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
    left = CreateEntry(header=header("c1", "create"), target=APP)
    await repository.begin(left)

    await repository.begin(DeleteEntry(header=header("c2", "delete"), before=APP))
    assert repository.is_undone("c1")
    store.full = True
    with pytest.raises(StoreError):
        await repository.begin(left)
    assert [entry.id for entry in repository.entries()] == ["c2"]
    await repository.close()

    again = await Store(tmp_path / "agent.db").open()
    assert ([entry.id for entry in again.entries], again.undone) == (["c2"], ["c1"])
