"""Events in the agent's database: written with the change that they tell of, and bounded."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.apps.records import event_view
from agent.journal import Actor, EntryHeader, StopEntry
from agent.state.database import AgentDatabase
from agent.state.history import (
    MAX_EVENTS_OF_AN_APP,
    MAX_FORMER_APPS,
    MAX_LATEST,
    MAX_OWN_EVENTS,
    Event,
)
from tests.support.agent.database.stored_app import APP, ENTRY
from tests.support.agent.database.transactions import finished, stored


def event(app: str = "web", action: str = "stop", *, time: float = 1.5) -> Event:
    return Event(time=time, app=app, by="ops", action=action, outcome="done")


def numbers(events: list[Event]) -> list[int]:
    return [each.number for each in events]


async def test_the_outcome_is_written_with_the_app_and_published_once_it_is_on_the_disk(
    store: AgentDatabase, tmp_path: Path
) -> None:
    published = list[Event]()
    store.listeners.append(published.extend)
    await store.begin(ENTRY)
    await store.write(finished(ENTRY, APP, event=event()))
    with closing(sqlite3.connect(tmp_path / "agent.db")) as other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)

    assert [(each.number, each.action) for each in published] == [(1, "stop")]
    assert await store.events_of("web") == published
    await store.close()

    again = AgentDatabase(tmp_path / "agent.db")
    assert (await again.open()).latest_events == published
    await again.close()


async def test_a_change_that_cannot_be_written_has_no_event(
    store: AgentDatabase, tmp_path: Path
) -> None:
    published = list[Event]()
    store.listeners.append(published.extend)
    with closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None)) as other:
        other.execute("CREATE TRIGGER no BEFORE INSERT ON apps BEGIN SELECT RAISE(FAIL, 'no'); END")

        with pytest.raises(Exception, match="no"):
            await store.write(stored(APP, event=event()))

    assert await store.events_of("web") == []
    assert published == []


@pytest.mark.slow
async def test_of_an_app_the_last_events_are_kept_and_of_others_none_is_lost(
    store: AgentDatabase, tmp_path: Path
) -> None:
    await store.write(stored(APP))
    await store.record([event("other")])
    await store.record([event() for _ in range(MAX_EVENTS_OF_AN_APP + 5)])

    assert numbers(await store.events_of("web")) == [*range(7, MAX_EVENTS_OF_AN_APP + 7)]
    assert numbers(await store.events_of("other")) == [1]
    await store.close()
    again = AgentDatabase(tmp_path / "agent.db")
    assert numbers((await again.open()).latest_events)[0] == MAX_EVENTS_OF_AN_APP + 7 - MAX_LATEST
    await again.close()


@pytest.mark.slow
@pytest.mark.parametrize("actor", ["engine", "agent"])
async def test_what_happens_to_an_app_by_itself_leaves_what_keys_did(
    store: AgentDatabase, actor: Actor
) -> None:
    by_key = msgspec.structs.replace(event(), actor="key", message=f'"actor":"{actor}"')
    own = msgspec.structs.replace(event(action="oom"), actor=actor)
    await store.write(stored(APP))
    await store.record([by_key, own, by_key])
    await store.record([own] * MAX_EVENTS_OF_AN_APP)

    actions = [each.action for each in await store.events_of("web")]
    assert actions == ["stop", "stop"] + ["oom"] * MAX_OWN_EVENTS


@pytest.mark.slow
async def test_the_events_of_an_app_that_is_gone_stay_until_many_others_have_gone(
    store: AgentDatabase,
) -> None:
    await store.write(stored(APP, event=event("web", "create")))
    await store.write(finished(ENTRY, None, event=event("web", "delete")))
    for number in range(MAX_FORMER_APPS - 1):
        await _create_and_delete(store, f"app-{number}")
    assert [each.action for each in await store.events_of("web")] == ["create", "delete"]

    await _create_and_delete(store, "one-more")

    assert await store.events_of("web") == []
    assert len(await store.events_of("app-0")) == 1


@pytest.mark.slow
async def test_one_key_does_not_remove_the_events_of_apps_that_others_have_deleted(
    store: AgentDatabase,
) -> None:
    for name in ("shop", "web"):
        await _create_and_delete(store, name)
    for number in range(MAX_FORMER_APPS + 1):
        await _create_and_delete(store, f"team-{number}", by="team")

    assert [len(await store.events_of(name)) for name in ("shop", "web")] == [1, 1]
    kept = [len(await store.events_of(f"team-{each}")) for each in range(MAX_FORMER_APPS + 1)]
    assert kept == [0, 0, 0] + [1] * (MAX_FORMER_APPS - 2)


async def _create_and_delete(store: AgentDatabase, name: str, *, by: str = "ops") -> None:
    header = EntryHeader(id=name, operation="stop", app=name, by=by, since=1.0)
    gone = msgspec.structs.replace(event(name), by=by)
    await store.write(finished(StopEntry(header=header, target=APP), None, event=gone))


@pytest.mark.slow
async def test_an_app_that_is_created_again_keeps_the_events_of_its_name(
    store: AgentDatabase,
) -> None:
    await store.write(finished(ENTRY, None, event=event("web", "delete")))
    await store.write(stored(APP, event=event("web", "create")))
    for number in range(MAX_FORMER_APPS + 1):
        await _create_and_delete(store, f"app-{number}")

    assert [each.action for each in await store.events_of("web")] == ["delete", "create"]


async def test_events_are_published_in_their_order_whoever_waits_for_them(
    store: AgentDatabase,
) -> None:
    published = list[Event]()
    store.listeners.append(published.extend)
    writes = [asyncio.create_task(store.record([event(), event()])) for _ in range(20)]
    await asyncio.sleep(0)
    writes[3].cancel()

    await asyncio.gather(*writes, return_exceptions=True)
    await store.record([event()])

    assert numbers(published) == [*range(1, 42)]


def test_an_event_is_known_by_its_number_and_its_time() -> None:
    first = Event(number=7, time=1.0025, app="web", by="ops", action="stop")

    assert first.id == f"7-{1002:x}"
    assert first.rfc3339 == "1970-01-01T00:00:01.002Z"


@pytest.mark.slow
@settings(max_examples=20)
@given(st.text(max_size=50), st.text(max_size=2000), st.floats(0, 4e9))
async def test_any_text_comes_back_and_is_one_line_of_a_stream(
    by: str, message: str, time: float
) -> None:
    with TemporaryDirectory() as folder:
        store = AgentDatabase(Path(folder) / "agent.db")
        await store.open()
        written = Event(time=time, app="web", by=by, action="update", message=message)
        await store.record([written])
        (read,) = await store.events_of("web")
        await store.close()

    assert (read.by, read.message or "", read.time) == (by, message[:1000], time)
    assert b"\n" not in msgspec.json.encode(event_view(read))
