"""What is asked for is held from the moment of asking, whatever the disk does."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.apps.repository.repository import AppRepository
from agent.journal import (
    CreateEntry,
    DeleteEntry,
    EntryHeader,
    JournalEntry,
    OperationKind,
    StopEntry,
)
from agent.model import App
from agent.state.database import AgentDatabase, StoreError
from agent.state.history import Event
from tests.support.agent.database.transactions import read_back

APP = App(
    name="web", image="web:1", ssh_port=20001, http_port=20002, cpu=100, memory=64, created_at=""
)


class FullStore(AgentDatabase):
    """A real store that takes nothing while it is full."""

    full = False

    async def begin(
        self, entry: JournalEntry, *, undone: str | None = None, event: Event | None = None
    ) -> None:
        if self.full:
            raise StoreError("full")
        await super().begin(entry, undone=undone, event=event)


def header(id_: str, operation: OperationKind) -> EntryHeader:
    return EntryHeader(id=id_, operation=operation, app="web", by="ops", since=1)


async def test_a_port_is_held_before_it_is_written(tmp_path: Path) -> None:
    store = AgentDatabase(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())

    writing = asyncio.create_task(repository.put(APP))
    await asyncio.sleep(0)
    held = repository.port_holder(20002, other_than="other")
    await writing

    assert held == "web"
    assert repository.port_holder(20001, other_than="other") == "web"
    assert repository.port_holder(20001, other_than="web") is None
    await repository.store.close()


async def test_a_change_takes_the_place_of_one_that_was_interrupted_whole_or_not_at_all(
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
    await repository.store.close()

    again = await read_back(tmp_path / "agent.db")
    assert ([entry.id for entry in again.entries], again.undone) == (["c2"], ["c1"])


async def test_an_interrupted_operation_that_another_replaces_is_reported_as_cancelled(
    tmp_path: Path,
) -> None:
    store = AgentDatabase(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())
    await repository.put(APP)
    await repository.begin(StopEntry(header=header("1", "stop"), target=APP))

    delete = DeleteEntry(header=header("2", "delete"), before=APP)
    await repository.begin(delete)
    await repository.finish(delete, None)

    reported = [
        (each.action, each.outcome, each.message) for each in await repository.events("web")
    ]
    assert reported == [
        ("stop", "cancelled", "it was interrupted, and a delete replaces it"),
        ("delete", "done", None),
    ]
    await repository.store.close()


@pytest.mark.parametrize("table", ["apps", "revisions", "events"])
async def test_an_app_its_revision_and_the_event_are_written_together_or_not_at_all(
    tmp_path: Path, table: str
) -> None:
    store = AgentDatabase(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())
    with closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None)) as other:
        other.execute(
            f"CREATE TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(FAIL, 'no'); END"
        )

        with pytest.raises(StoreError, match="no"):
            await repository.put(APP, outcome_of=header("1", "create"))
        assert (repository.find("web"), repository.revisions.numbers("web")) == (None, [])
        assert (await store.revisions("web"), await store.events_of("web")) == ([], [])

        other.execute("DROP TRIGGER no")
    await repository.put(APP, outcome_of=header("1", "create"))

    assert [each.revision for each in await repository.store.revisions("web")] == [1]
    assert [each.revision for each in await repository.events("web")] == [1]
    await repository.store.close()
