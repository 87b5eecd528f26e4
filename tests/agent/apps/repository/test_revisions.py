"""Which changes of an app are revisions, and what a rollback brings back."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import LogCapture

from agent.apps.defaults import AppDefaults
from agent.apps.errors import (
    AppNotFound,
    NoRevisionBefore,
    RevisionNotFound,
    RollbackRefused,
    StartFailed,
)
from agent.apps.service.apps import Apps
from agent.model import FIELD_KINDS, App, AppChanges, Down, HealthCheck, NewApp, spec_values
from agent.state.history import MOST_REVISIONS, Revision
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    DATA_IMAGE,
    IMAGE,
    IMAGE_IDS,
    OTHER_IMAGE,
    FakeEngine,
    fake_image,
)
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
OTHER_ASKER = replace(ASKER, name="deploy")
NEWER = fake_image("newer")


def apps_of(
    folder: Path, engine: FakeEngine, defaults: AppDefaults = AT_ONCE
) -> AbstractAsyncContextManager[Apps]:
    return running_apps(folder, engine, LogCapture(), defaults=defaults)


async def create(apps: Apps, **fields: Any) -> None:
    await apps.create(NewApp(name="web", image=IMAGE, **fields), ASKER)


async def numbers(apps: Apps) -> list[int]:
    return [each.revision for each in await apps.history("web")]


async def test_each_change_of_fields_or_image_is_a_revision_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(cpu=70), OTHER_ASKER)
        await apps.update("web", AppChanges(description="Shop", pull="never"), ASKER)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        await apps.update("web", AppChanges(env={"A": "1"}, cpu=70), ASKER)
        await apps.stop("web", ASKER)
        await apps.start("web", ASKER)
        await apps.add_label("web", "tier:web", ASKER)
        await apps.set_password("web", "a good password", ASKER)
        await apps.rebuild("web", ASKER)
        with pytest.raises(StartFailed):
            await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        engine.tag(IMAGE, NEWER)
        await apps.update("web", AppChanges(pull="always"), ASKER)
        await apps.rebuild("web", ASKER)
        history = await apps.history("web")
        record = await apps.get("web")

    assert [(each.revision, each.by, each.operation, each.changed) for each in history] == [
        (6, "operator", "rebuild", ("image_id",)),
        (5, "operator", "update", ("pull",)),
        (4, "operator", "update", ("env",)),
        (3, "operator", "update", ("description", "pull")),
        (2, "deploy", "update", ("cpu",)),
        (1, "operator", "create", ()),
    ]
    assert [each.image_id for each in history] == [NEWER.id, *[IMAGE_IDS[IMAGE]] * 5]
    assert record.revision == 6
    assert spec_values(record) == spec_values(history[0])
    assert [each.created_at for each in history] == sorted(
        (each.created_at for each in history), reverse=True
    )


async def test_the_last_ten_are_kept_also_after_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        for cpu in range(60, 71):
            await apps.update("web", AppChanges(cpu=cpu), ASKER)
        kept = await apps.history("web")
    async with apps_of(tmp_path, engine) as apps:
        again = await apps.history("web")
        await apps.update("web", AppChanges(cpu=90), ASKER)
        more = await numbers(apps)

    assert [each.revision for each in kept] == list(range(12, 2, -1))
    assert len(kept) == MOST_REVISIONS
    assert again == kept
    assert more == list(range(13, 3, -1))


async def test_an_app_that_goes_takes_its_history_with_it_also_when_its_data_is_kept(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, env={"TOKEN": "s3cret"})
        await apps.update("web", AppChanges(cpu=70), ASKER)
        await apps.delete("web", ASKER, keep_data=True)
        with pytest.raises(AppNotFound):
            await apps.history("web")
        await create(apps)
        history = await apps.history("web")

    assert [(each.revision, each.env) for each in history] == [(1, {})]


async def test_a_creation_that_failed_has_no_history_until_the_app_starts(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        body = NewApp(name="web", image=BROKEN_IMAGE)
        await apps.create(body, replace(ASKER, respond_async=True))

        async def failed() -> bool:
            return (await apps.get("web")).state == "failed"

        await async_until(failed)
        assert ((await apps.get("web")).revision, await apps.history("web")) == (None, [])
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        assert await apps.history("web") == []
        with pytest.raises(NoRevisionBefore, match="history"):
            await apps.rollback("web", None, ASKER)
        started = await apps.start("web", ASKER)

        (first,) = await apps.history("web")
        assert (first.revision, first.operation, first.image) == (1, "start", OTHER_IMAGE)
        assert started.revision == 1


async def test_a_rollback_is_the_next_revision_and_another_one_takes_it_back(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, env={"A": "1"})
        await apps.set_password("web", "a good password", ASKER)
        await apps.add_label("web", "tier:web", ASKER)
        await apps.update("web", AppChanges(image=OTHER_IMAGE, env={"A": "2"}), ASKER)
        back = await apps.rollback("web", None, OTHER_ASKER)
        forth = await apps.rollback("web", None, ASKER)
        history = await apps.history("web")
        (container,) = engine.state.containers.values()

    assert (back.revision, back.image, back.env) == (3, IMAGE, {"A": "1"})
    assert back.image_id == IMAGE_IDS[IMAGE]
    assert (back.password, back.labels, back.state) == ("set", ("tier:web",), "running")
    assert (forth.revision, forth.image, forth.env) == (4, OTHER_IMAGE, {"A": "2"})
    assert container.shadow
    told = [(each.operation, each.by, each.rollback_to) for each in history]
    assert told == [
        ("rollback", "operator", 2),
        ("rollback", "deploy", 1),
        ("update", "operator", None),
        ("create", "operator", None),
    ]


async def test_a_rollback_takes_the_image_that_ran_though_the_tag_has_moved(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.tag(IMAGE, NEWER)
        await apps.rebuild("web", ASKER)
        back = await apps.rollback("web", 1, ASKER)
        (container,) = engine.state.containers.values()

    assert back.image_id == container.image_id == IMAGE_IDS[IMAGE]
    assert back.image == IMAGE


CHANGES: Mapping[str, Callable[[Apps], Awaitable[Any]]] = {
    "metadata": lambda apps: apps.update("web", AppChanges(description="Shop"), ASKER),
    "limits": lambda apps: apps.update("web", AppChanges(cpu=70, memory=40), ASKER),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_rollback_replaces_no_container_for_fields_that_an_update_does_not(
    tmp_path: Path, change: Callable[[Apps], Awaitable[Any]]
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        before = await apps.get("web")
        await change(apps)
        after = await apps.rollback("web", 1, ASKER)

    assert after == msgspec.structs.replace(before, revision=3)


async def test_a_rollback_to_a_revision_whose_image_is_not_known_keeps_that_of_the_app(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(description="Shop"), ASKER)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute("UPDATE revisions SET image_id = NULL WHERE revision = 1")
    async with apps_of(tmp_path, engine) as apps:
        before = await apps.get("web")
        back = await apps.rollback("web", None, ASKER)
        history = await apps.history("web")

    assert back == msgspec.structs.replace(before, description="", revision=3)
    assert [each.image_id for each in history] == [IMAGE_IDS[IMAGE], IMAGE_IDS[IMAGE], None]


async def test_a_rollback_to_what_the_app_is_changes_nothing(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        once = await apps.rollback("web", 1, ASKER)
        again = await apps.rollback("web", 1, ASKER)
        present = await apps.rollback("web", 3, ASKER)

    assert once == again == present
    assert once.revision == 3


async def test_a_rollback_of_an_app_without_a_container_makes_one(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        engine.state.containers.clear()
        back = await apps.rollback("web", None, ASKER)
        engine.state.containers.clear()
        same = await apps.rollback("web", 3, ASKER)

        assert (back.state, back.image, back.revision) == ("running", IMAGE, 3)
        assert (same.state, same.image, same.revision) == ("running", IMAGE, 3)


async def test_a_rollback_of_a_stopped_app_leaves_it_stopped(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        await apps.stop("web", ASKER)
        back = await apps.rollback("web", None, ASKER)

    assert (back.desired, back.state, back.image) == ("stopped", "created", IMAGE)


async def test_a_rollback_leaves_down_what_somebody_stopped_through_the_engine(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        (row,) = database.execute("SELECT app FROM apps").fetchone()
        app = msgspec.json.decode(row, type=App)
        left = msgspec.structs.replace(app, down=Down(cause="found"))
        database.execute("UPDATE apps SET app = ?", (msgspec.json.encode(left),))
    (container,) = engine.state.containers.values()
    container.state = "exited"
    async with apps_of(tmp_path, engine) as apps:
        back = await apps.rollback("web", None, ASKER)

    assert (back.desired, back.state, back.image) == ("running", "created", IMAGE)


async def test_a_revision_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        with pytest.raises(RevisionNotFound, match=r"no revision 7; GET /v1/apps/web/history"):
            await apps.rollback("web", 7, ASKER)
        with pytest.raises(NoRevisionBefore, match="no revision before"):
            await apps.rollback("web", None, ASKER)
        with pytest.raises(AppNotFound):
            await apps.rollback("other", 1, ASKER)
        assert await numbers(apps) == [1]


async def test_a_rollback_to_a_port_that_another_app_has_by_now_is_refused(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps, http_port=20_555)
        await apps.update("web", AppChanges(http_port=20_556), ASKER)
        await apps.create(NewApp(name="shop", image=IMAGE, http_port=20_555), ASKER)
        with pytest.raises(
            RollbackRefused, match="port 20555 is held by app `shop`; free that port; or"
        ):
            await apps.rollback("web", 1, ASKER)

        record = await apps.get("web")
        assert (record.http_port, record.state, record.revision) == (20_556, "running", 2)


async def test_a_rollback_keeps_to_what_the_settings_allow_today(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, command=("serve",))
        await apps.update("web", AppChanges(command=()), ASKER)
    async with apps_of(tmp_path, engine, replace(AT_ONCE, allow_command=False)) as apps:
        with pytest.raises(RollbackRefused, match=r"apps\.allow_command"):
            await apps.rollback("web", 1, ASKER)
        assert (await apps.get("web")).revision == 2


async def test_promised_memory_does_not_refuse_a_rollback(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, memory=4096)
        await apps.update("web", AppChanges(memory=40), ASKER)
    async with apps_of(tmp_path, engine, replace(AT_ONCE, overcommit_percent=1)) as apps:
        assert (await apps.rollback("web", 1, ASKER)).memory == 4096


async def test_a_rollback_whose_container_does_not_start_leaves_the_app_as_it_is(
    tmp_path: Path,
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        await apps.stop("web", ASKER)
        await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        before = await apps.start("web", ASKER)
        with pytest.raises(StartFailed):
            await apps.rollback("web", 2, ASKER)
        after = await apps.get("web")

    assert (after.image, after.state, after.revision) == (OTHER_IMAGE, "running", 3)
    assert (after.container_id, after.image_id) == (before.container_id, before.image_id)


async def test_the_volumes_of_all_revisions_stay_whichever_the_app_is(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)
        await apps.update("web", AppChanges(image=IMAGE, data=("/more", "/data")), ASKER)
        updated = await apps.get("web")
        volumes = dict(engine.state.volumes)
        back = await apps.rollback("web", 1, ASKER)
        (container,) = engine.state.containers.values()

    assert engine.state.volumes == volumes
    assert back.volumes == updated.volumes == container.volumes
    assert set(back.volumes) == {"/cache", "/data", "/more"}


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
FIELDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "env": st.dictionaries(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True), TEXT
        ),
        "description": TEXT,
        "command": st.lists(TEXT, max_size=3).map(tuple),
        "cpu": st.integers(1, 400),
        "data": st.sampled_from([(), ("/srv",), ("/a b", "/ü")]),
        "health": st.none() | st.builds(HealthCheck, command=st.tuples(TEXT.filter(bool))),
        "stop_seconds": st.none() | st.integers(0, 3600),
    },
)


@given(changes=st.lists(FIELDS, min_size=1, max_size=6), choice=st.integers(0, 6))
@settings(deadline=None, max_examples=25)
async def test_whatever_its_text_a_revision_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, Any]], choice: int
) -> None:
    seen = list[Any]()
    async with apps_of(tmp_path_factory.mktemp("text"), FakeEngine()) as apps:
        await create(apps)
        seen.append(spec_values(await apps.get("web")))
        for fields in changes:
            now = spec_values(await apps.update("web", AppChanges(**fields), ASKER))
            if now != seen[-1]:
                seen.append(now)
        history: list[Revision] = (await apps.history("web"))[::-1]
        chosen = seen[choice % len(seen)]
        back = await apps.rollback("web", 1 + choice % len(seen), ASKER)

    assert [spec_values(each) for each in history] == seen
    assert {name: getattr(back, name) for name in FIELD_KINDS} == chosen
