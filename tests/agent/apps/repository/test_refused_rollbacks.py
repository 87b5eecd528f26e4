"""Which rollbacks are refused or fail; the app stays as it is then."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.apps.errors import (
    AppNotFound,
    NoRevisionBefore,
    RevisionNotFound,
    RollbackRefused,
    StartFailed,
)
from agent.model import AppChanges, NewApp
from tests.support.agent.apps.revisions import apps_of, create, numbers
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE

pytestmark = pytest.mark.slow


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

        record = await apps.queries.one("web")
        assert (record.http_port, record.state, record.revision) == (20_556, "running", 2)


async def test_a_rollback_keeps_to_what_the_settings_allow_today(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, command=("serve",))
        await apps.update("web", AppChanges(command=()), ASKER)
    async with apps_of(tmp_path, engine, replace(AT_ONCE, allow_command=False)) as apps:
        with pytest.raises(RollbackRefused, match=r"apps\.allow_command"):
            await apps.rollback("web", 1, ASKER)
        assert (await apps.queries.one("web")).revision == 2


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
        after = await apps.queries.one("web")

    assert (after.image, after.state, after.revision) == (OTHER_IMAGE, "running", 3)
    assert (after.container_id, after.image_id) == (before.container_id, before.image_id)
