"""Databases of earlier versions are taken over: whole, or not at all."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from agent.model import (
    CreateEntry,
    DeleteEntry,
    Entry,
    LimitsEntry,
    PasswordEntry,
    ReplacedEntry,
    ReplaceEntry,
    StartEntry,
    StopEntry,
)
from agent.state.store import Store, StoreUnusable
from tests.support.agent.interrupted import Interruption, interruptions

SCHEMAS = Path(__file__).with_name("schemas")
TYPES: dict[str, set[type[Entry]]] = {
    "change_limits": {LimitsEntry},
    "change_the_image": {ReplaceEntry, ReplacedEntry},
    "create": {CreateEntry},
    "create_in_the_background": {CreateEntry},
    "delete_and_keep_the_data": {DeleteEntry},
    "rebuild_in_the_background": {ReplaceEntry, ReplacedEntry},
    "set_a_password": {PasswordEntry},
    "start": {StartEntry},
    "start_an_app_that_has_lost_its_container": {StartEntry, ReplacedEntry},
    "start_an_app_that_has_lost_container_and_volume": {ReplaceEntry, ReplacedEntry},
    "stop": {StopEntry},
}


async def migrated(interruption: Interruption, path: Path) -> Entry:
    """Open the database of an interruption; return the one entry of its journal."""
    interruption.write_database(path)
    store = Store(path)
    (entry,) = (await store.open()).entries
    await store.close()
    again = Store(path)
    assert (await again.open()).entries == [entry]
    await again.close()
    return entry


@pytest.mark.parametrize("operation", TYPES)
async def test_each_row_of_the_journal_becomes_an_entry_of_its_operation(
    tmp_path: Path, operation: str
) -> None:
    types = set[type[Entry]]()
    for number, interruption in enumerate(interruptions(operation)):
        entry = await migrated(interruption, tmp_path / str(number) / "agent.db")
        types.add(type(entry))
        (change,) = interruption.changes
        header = msgspec.to_builtins(entry.header)
        assert header.pop("background") == change["promised"]
        assert header == {field: change[field] for field in header}

    assert types == TYPES[operation]


async def test_the_volume_of_an_operation_that_broke_off_gets_its_name(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_3.sql").read_text("utf-8"))

    store = Store(path)
    stored = await store.open()
    await store.close()

    assert [(app.name, app.volumes) for app in stored.apps] == [
        *(("failed", {}), ("gone", {}), ("web", {}))
    ]
    entries = {entry.app: entry for entry in stored.entries}
    new, web = entries["new"], entries["web"]
    assert isinstance(new, CreateEntry)
    assert new.new_volumes == ("rollcall-new",)
    assert isinstance(web, ReplaceEntry)
    assert (web.new_volumes, web.was_running) == (("rollcall-web",), True)
    gone, failed = entries["gone"], entries["failed"]
    assert isinstance(gone, DeleteEntry)
    assert gone.volumes == ("rollcall-gone",)
    assert isinstance(failed, DeleteEntry)
    assert failed.volumes == ()  # data that was kept from before the failed creation
    assert (stored.undone, stored.kept_data) == (["older-1"], {})


async def test_a_database_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    interruption, path = interruptions("rebuild")[0], tmp_path / "below" / "agent.db"
    interruption.write_database(path)
    with closing(sqlite3.connect(path)) as old:
        old.executescript("DROP TABLE undone; PRAGMA user_version = 1;")

    store = Store(path)
    stored = await store.open()
    await store.close()

    assert [app.name for app in stored.apps] == ["web"]
    assert [entry.app for entry in stored.entries] == ["web"]
    assert stored.undone == []


@pytest.mark.parametrize("damage", ['{"app": "web"}', "{", '{"operation": "stop", "target": null}'])
async def test_a_row_that_cannot_be_migrated_stops_the_start_and_all_is_left_as_it_is(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "below" / "agent.db"
    interruptions("rebuild")[0].write_database(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO changes VALUES ('zzz', CAST(? AS BLOB))", (damage,))

    store = Store(path)
    with pytest.raises(StoreUnusable, match="damaged"):
        await store.open()
    await store.close()

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)
        assert database.execute("SELECT app FROM changes").fetchall() == [("web",), ("zzz",)]
        tables = database.execute("SELECT name FROM sqlite_master WHERE name = 'journal'")
        assert tables.fetchall() == []
