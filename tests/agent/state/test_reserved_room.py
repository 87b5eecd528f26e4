"""The room in the agent's database for what has to be recorded on a full disk."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from agent.engine.errors import DiskFull
from agent.journal import DeleteEntry, EntryHeader, OperationKind, StopEntry
from agent.model import App, spec_values
from agent.state.database import AgentDatabase
from agent.state.history import Event, Revision
from tests.support.agent.database.stored_app import APP
from tests.support.agent.database.transactions import finished, stored

LARGE_ENV = {"TEXT": "x" * 32_000}
# As JSON, an app with this env has six times as many bytes.
ESCAPED_ENV = {"TEXT": "\x01" * 32_000}
LABELS = tuple(f"n{number}:".ljust(1000, "x") for number in range(1000))


class FullDiskStore(AgentDatabase):
    """A store whose file can be kept from growing."""

    async def fill_disk(self) -> None:
        """Let the file have the pages that it has, and no more."""

        def cap(connection: sqlite3.Connection) -> None:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

        await self._read(cap)

    async def empty_disk(self) -> None:
        """Let the file grow again."""
        await self._read(lambda connection: connection.execute("PRAGMA max_page_count = 1000000"))


def header(operation: OperationKind, app: App) -> EntryHeader:
    return EntryHeader(id=f"{operation} it", operation=operation, app=app.name, by="ops", since=1)


def event(action: str, app: App) -> Event:
    return Event(time=1.5, app=app.name, by="ops", action=action, outcome="done")


async def update(store: AgentDatabase, app: App, number: int) -> App:
    """Write an app as an update with this number leaves it."""
    app = msgspec.structs.replace(app, revision=number, description=f"{number}")
    revision = Revision(
        **spec_values(app), revision=number, created_at=app.created_at, operation="update"
    )
    await store.write(stored(app, revision=revision, event=event("update", app)))
    return app


@pytest.mark.slow
@pytest.mark.parametrize(
    "app",
    [
        msgspec.structs.replace(APP, env=LARGE_ENV),
        msgspec.structs.replace(APP, env=ESCAPED_ENV),
        msgspec.structs.replace(APP, labels=LABELS),
    ],
    ids=["env", "escaped env", "labels"],
)
async def test_stops_and_deletes_of_large_apps_are_recorded_on_a_disk_that_updates_have_filled(
    tmp_path: Path, app: App
) -> None:
    store = FullDiskStore(tmp_path / "agent.db")
    await store.open()
    for number in range(1, 8):
        app = await update(store, app, number)
    await store.fill_disk()
    with pytest.raises(DiskFull):
        await _fill(store)

    stopped = msgspec.structs.replace(app, desired="stopped")
    for _ in range(20):
        stop = StopEntry(header=header("stop", app), target=app)
        await store.begin(stop)
        await store.write(finished(stop, stopped, event=event("stop", app)))
    delete = DeleteEntry(header=header("delete", app), before=stopped)
    await store.begin(delete)
    await store.write(finished(delete, None, event=event("delete", app)))
    await store.close()

    assert (await AgentDatabase(tmp_path / "agent.db").open()).apps == []


async def _fill(store: AgentDatabase) -> None:
    """Record events until there is no room for them."""
    for _ in range(1000):
        await store.record([msgspec.structs.replace(event("die", APP), message="x" * 1000)])


async def test_the_room_is_reserved_again_once_the_disk_has_some(tmp_path: Path) -> None:
    large = msgspec.structs.replace(APP, env=LARGE_ENV)
    store = FullDiskStore(tmp_path / "agent.db")
    await store.open()
    await store.fill_disk()
    with pytest.raises(DiskFull):
        await _put_many(store, large)
    await store.empty_disk()
    await store.write(stored(APP))
    await store.fill_disk()

    stop = StopEntry(header=header("stop", APP), target=large)
    await store.begin(stop)
    await store.write(finished(stop, large))
    await store.close()


async def _put_many(store: AgentDatabase, app: App) -> None:
    """Write apps until there is no room for them."""
    for number in range(1000):
        await store.write(stored(msgspec.structs.replace(app, name=f"web-{number}")))
