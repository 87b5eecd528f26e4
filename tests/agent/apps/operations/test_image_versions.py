"""A new version of an image comes with `image` or a rebuild, never with another change."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import ImageUnavailable
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, IMAGE_IDS, FakeEngine, fake_image
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps

NEW_VERSION = fake_image("newer")
OTHER_FIELDS: Mapping[str, AppChanges] = {
    "port": AppChanges(http_port=20_555),
    "env": AppChanges(env={"A": "1"}),
    "data": AppChanges(data=("/srv", "/more")),
    "the same image and env": AppChanges(image=IMAGE, env={"A": "1"}),
}


def apps_of(folder: Path, engine: FakeEngine) -> AbstractAsyncContextManager[AskedApps]:
    return running_apps(folder, engine, LogCapture(), defaults=AT_ONCE)


async def create(apps: AskedApps) -> None:
    await apps.create(NewApp(name="web", image=IMAGE), ASKER)


def container_of(engine: FakeEngine) -> FakeContainer:
    (container,) = engine.state.containers.values()
    return container


@pytest.mark.slow
@pytest.mark.parametrize("changes", OTHER_FIELDS.values(), ids=OTHER_FIELDS)
async def test_a_change_of_another_field_keeps_the_image_though_the_tag_has_moved(
    tmp_path: Path, changes: AppChanges
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.tag(IMAGE, NEW_VERSION)
        updated = await apps.update("web", changes, ASKER)

    assert updated.image_id == container_of(engine).image_id == IMAGE_IDS[IMAGE]
    assert updated.image == IMAGE


@pytest.mark.slow
async def test_a_rebuild_takes_the_new_version(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.tag(IMAGE, NEW_VERSION)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        rebuilt = await apps.rebuild("web", ASKER)
        again = await apps.update("web", AppChanges(env={}), ASKER)

    assert rebuilt.image_id == again.image_id == NEW_VERSION.id


@pytest.mark.slow
async def test_the_container_has_the_reference_while_that_leads_to_its_image(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        unmoved = container_of(engine).image
        engine.tag(IMAGE, NEW_VERSION)
        await apps.update("web", AppChanges(env={"A": "2"}), ASKER)

    assert unmoved == IMAGE
    assert container_of(engine).image == IMAGE_IDS[IMAGE]


@pytest.mark.slow
async def test_a_tag_that_moves_while_the_container_is_made_is_noticed(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def move(step: str) -> None:
        if step == "before create":
            engine.tag(IMAGE, NEW_VERSION)

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = move
        updated = await apps.update("web", AppChanges(env={"A": "1"}), ASKER)

    assert updated.image_id == container_of(engine).image_id == IMAGE_IDS[IMAGE]


@pytest.mark.slow
async def test_an_app_that_has_lost_its_container_gets_another_of_the_same_image(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.state.containers.clear()
        engine.tag(IMAGE, NEW_VERSION)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)

        assert (await apps.start("web", ASKER)).image_id == IMAGE_IDS[IMAGE]


@pytest.mark.slow
async def test_an_image_that_is_gone_is_not_replaced_by_a_newer_one_without_a_word(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.state.containers.clear()
        engine.tag(IMAGE, NEW_VERSION)
        engine.untag(IMAGE_IDS[IMAGE])
        with pytest.raises(ImageUnavailable, match="rebuild"):
            await apps.start("web", ASKER)

        assert (await apps.rebuild("web", ASKER)).image_id == NEW_VERSION.id
