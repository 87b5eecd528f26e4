"""Databases of earlier versions are taken over: whole, or not at all."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from agent.apps.repository.repository import AppRepository
from agent.journal import (
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
from agent.model import Down, spec_values
from agent.state.events import Event
from agent.state.history import Pull
from agent.state.rows import AppTransaction
from agent.state.store import Store, StoreUnusable
from tests.support.agent.recorded.interrupted import Interruption, interruptions

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


@pytest.mark.slow
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
        assert (header.pop("revision"), header.pop("reason")) == (None, None)
        assert header.pop("actor") == "key"
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


async def test_an_earlier_version_left_down_what_it_left_down(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_4.sql").read_text("utf-8"))

    store = Store(path)
    stored = await store.open()
    await store.close()

    found = Down(cause="found")
    assert [(app.name, app.desired, app.down) for app in stored.apps] == [
        ("busy", "running", found),
        ("stopped", "stopped", None),
        ("web", "running", found),
    ]
    (entry,) = stored.entries
    assert isinstance(entry, ReplaceEntry)
    assert (entry.was_running, entry.before.down, entry.before.health) == (True, None, None)


async def test_each_app_of_an_earlier_version_begins_its_history(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_5.sql").read_text("utf-8"))

    store = Store(path)
    stored = await store.open()
    apps = {app.name: app for app in stored.apps}
    history = {name: await store.revisions(name) for name in apps}
    await store.close()
    again = Store(path)
    assert (await again.open()).apps == stored.apps
    await again.close()

    assert {name: app.revision for name, app in apps.items()} == {
        "busy": 1,
        "failed": None,
        "stopped": 1,
        "web": 1,
    }
    assert history["failed"] == []
    for name in ("busy", "stopped", "web"):
        (first,) = history[name]
        assert spec_values(first) == spec_values(apps[name])
        assert (first.image_id, first.operation, first.by) == (
            *(apps[name].image_id, "upgrade", None),
        )
    down = apps["web"].down
    assert down is not None
    assert down.cause == "not_started"  # which version 5 wrote, and the migration before does not
    assert {image.app: image.image_id for image in stored.images} == {
        "busy": "i1",
        "stopped": "i1",
        "web": "i2",
    }
    assert stored.pulled == {}


async def test_an_update_that_an_earlier_version_left_to_be_finished_is_the_second_revision(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_5.sql").read_text("utf-8"))
    store = Store(path)
    repository = AppRepository(store)
    repository.load(await store.open())
    (entry,) = repository.entries()
    assert isinstance(entry, ReplacedEntry)

    await repository.finish(entry, entry.target)
    second, first = await repository.history("busy")
    await repository.close()

    assert (first.operation, first.image) == ("upgrade", "app:1")
    assert (second.revision, second.operation, second.by) == (2, "update", "operator")
    assert (second.image, second.image_id, second.changed) == ("app:2", "i2", ("image", "image_id"))


async def test_a_database_with_a_history_and_without_events_keeps_what_broke_off_and_its_revisions(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_6.sql").read_text("utf-8"))
    store = Store(path)
    stored = await store.open()
    repository = AppRepository(store)
    repository.load(stored)
    (entry,) = repository.entries()
    assert isinstance(entry, ReplaceEntry)
    history = {name: await repository.history(name) for name in ("busy", "stopped", "web")}

    await repository.finish(entry, entry.target)
    second, first = await repository.history("busy")
    (event,) = await store.events_of("busy")
    await repository.close()

    assert (stored.latest_events, stored.pulls) == ([], [])
    assert stored.pulled == {"p1": {"s/app:1"}, "p2": {"s/app:2"}}
    assert {name: [each.image for each in revisions] for name, revisions in history.items()} == {
        "busy": ["s/app:1"],
        "stopped": ["s/app:1"],
        "web": ["s/app:2", "s/app:1"],
    }
    assert (first.image, second.image, second.by) == ("s/app:1", "s/app:2", "operator")
    assert (event.by, event.action, event.outcome) == ("operator", "update", "done")


@pytest.mark.parametrize("schema", ["schema_5", "schema_6"])
async def test_a_database_from_before_the_events_has_them_from_now_on(
    tmp_path: Path, schema: str
) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / f"{schema}.sql").read_text("utf-8"))

    store = Store(path)
    opened = await store.open()
    app = opened.apps[-1]
    event = Event(time=1, app="web", by="ops", action="stop")
    await store.write(AppTransaction(name=app.name, app=app, event=event))
    events = await store.events_of("web")
    await store.close()

    assert opened.latest_events == []
    assert [(each.number, each.action) for each in events] == [(1, "stop")]


async def test_a_database_from_before_pulls_were_written_down_has_none_and_keeps_its_images(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((SCHEMAS / "schema_7.sql").read_text("utf-8"))

    store = Store(path)
    opened = await store.open()
    pull = Pull(reference="s/app:3", began_at=1, alive_at=2, images={"p1": frozenset({"s/app:1"})})
    await store.begin_pull(pull)
    await store.close()
    again = Store(path)
    reopened = await again.open()
    await again.close()

    assert (opened.pulls, reopened.pulls) == ([], [pull])
    assert opened.pulled == {"p1": {"s/app:1"}, "p2": {"s/app:2"}}
    assert [(app.name, app.revision) for app in opened.apps] == [("stopped", 1), ("web", 2)]
    assert [each.action for each in opened.latest_events] == ["create", "update", "create", "stop"]


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
