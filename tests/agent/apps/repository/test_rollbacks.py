"""What a rollback brings back, and what it leaves as it is."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.apps.errors import (
    AppNotFound,
    NoRevisionBefore,
    RevisionNotFound,
    RollbackRejected,
)
from agent.model import App, AppChanges, Down, NewApp
from tests.support.agent.apps.revisions import NEWER, OTHER_ASKER, apps_of, create, numbers
from tests.support.agent.engines.fake_engine import (
    DATA_IMAGE,
    IMAGE,
    IMAGE_IDS,
    OTHER_IMAGE,
    FakeEngine,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps

pytestmark = pytest.mark.slow


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
    reported = [(each.operation, each.by, each.rollback_to) for each in history]
    assert reported == [
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


CHANGES: Mapping[str, Callable[[AskedApps], Awaitable[Any]]] = {
    "metadata": lambda apps: apps.update("web", AppChanges(description="Shop"), ASKER),
    "limits": lambda apps: apps.update("web", AppChanges(cpu=70, memory=40), ASKER),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_rollback_replaces_no_container_for_fields_that_an_update_does_not(
    tmp_path: Path, change: Callable[[AskedApps], Awaitable[Any]]
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps)
        before = await apps.queries.one("web")
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
        before = await apps.queries.one("web")
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
        left = msgspec.structs.replace(app, down=Down(cause="stopped"))
        database.execute("UPDATE apps SET app = ?", (msgspec.json.encode(left),))
    (container,) = engine.state.containers.values()
    container.state = "exited"
    async with apps_of(tmp_path, engine) as apps:
        back = await apps.rollback("web", None, ASKER)

    assert (back.desired, back.state, back.image) == ("running", "created", IMAGE)


async def test_the_volumes_of_all_revisions_stay_whichever_the_app_is(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)
        await apps.update("web", AppChanges(image=IMAGE, data=("/more", "/data")), ASKER)
        updated = await apps.queries.one("web")
        volumes = dict(engine.state.volumes)
        back = await apps.rollback("web", 1, ASKER)
        (container,) = engine.state.containers.values()

    assert engine.state.volumes == volumes
    assert back.volumes == updated.volumes == container.volumes
    assert set(back.volumes) == {"/cache", "/data", "/more"}


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


async def test_a_rollback_to_a_port_that_another_app_has_by_now_is_rejected(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await create(apps, http_port=20_555)
        await apps.update("web", AppChanges(http_port=20_556), ASKER)
        await apps.create(NewApp(name="shop", image=IMAGE, http_port=20_555), ASKER)
        with pytest.raises(
            RollbackRejected, match="port 20555 is held by app `shop`; free that port; or"
        ):
            await apps.rollback("web", 1, ASKER)

        record = await apps.queries.one("web")
        assert (record.http_port, record.state, record.revision) == (20_556, "running", 2)


async def test_a_rollback_keeps_to_what_the_settings_allow_today(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, command=("serve",))
        await apps.update("web", AppChanges(command=()), ASKER)
    async with apps_of(tmp_path, engine, replace(AT_ONCE, allow_command=False)) as apps:
        with pytest.raises(RollbackRejected, match=r"apps\.allow_command"):
            await apps.rollback("web", 1, ASKER)
        assert (await apps.queries.one("web")).revision == 2


async def test_promised_memory_does_not_reject_a_rollback(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, memory=4096)
        await apps.update("web", AppChanges(memory=40), ASKER)
    async with apps_of(tmp_path, engine, replace(AT_ONCE, overcommit_percent=1)) as apps:
        assert (await apps.rollback("web", 1, ASKER)).memory == 4096
