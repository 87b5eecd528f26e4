"""`apps.allowed_images`: an app gets no image from anywhere else, however it is named."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.admission.fields import check_new_app
from agent.apps.errors import ImageNotAllowed, InvalidApp
from agent.apps.service.apps import Apps
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import FakeEngine, fake_image
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

pytestmark = pytest.mark.slow

OURS, OTHERS = "registry.example.com/shop:1", "registry.example.com.evil.example/shop:1"
OUR_ID, OTHER_ID = "sha256:" + "1" * 64, "sha256:" + "2" * 64
ONLY_OURS = replace(AT_ONCE, allowed_images=("registry.example.com/",))


def engine_with_both() -> FakeEngine:
    engine = FakeEngine()
    engine.tag(OURS, replace(fake_image(OUR_ID), tags=frozenset({OURS})))
    engine.tag(OTHERS, replace(fake_image(OTHER_ID), tags=frozenset({OTHERS, "shop:1"})))
    engine.tag("shop:1", replace(fake_image(OTHER_ID), tags=frozenset({OTHERS, "shop:1"})))
    return engine


@pytest.mark.parametrize("image", [OTHERS, "shop:1", OTHER_ID, "sha256:" + "9" * 64])
async def test_a_create_or_an_update_with_another_image_is_rejected(
    tmp_path: Path, image: str
) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        before = await apps.create(NewApp(name="web", image=OURS), ASKER)
        with pytest.raises(ImageNotAllowed, match=r"`apps\.allowed_images` .* registry\.example"):
            await apps.create(NewApp(name="new", image=image), ASKER)
        with pytest.raises(ImageNotAllowed):
            await apps.update("web", AppChanges(image=image), ASKER)
        assert await apps.queries.one("web") == before
        assert [each.name for each in await apps.queries.all()] == ["web"]


async def test_an_image_that_is_given_by_its_id_is_known_by_its_names(tmp_path: Path) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        created = await apps.create(NewApp(name="web", image=OUR_ID), ASKER)
    assert created.image_id == OUR_ID


async def test_the_beginning_of_an_id_is_no_name_of_docker_hub(tmp_path: Path) -> None:
    engine, only_hub = engine_with_both(), replace(AT_ONCE, allowed_images=("docker.io/",))
    short = OUR_ID.removeprefix("sha256:")[:12]
    engine.tag(short, replace(fake_image(OUR_ID), tags=frozenset({OURS})))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=only_hub) as apps:
        with pytest.raises(ImageNotAllowed):
            await apps.create(NewApp(name="web", image=short), ASKER)
        assert await apps.queries.all() == []
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        assert (await apps.create(NewApp(name="web", image=short), ASKER)).image_id == OUR_ID


@pytest.mark.parametrize("image", ["Evil/app", "evil/App:1", "a/Evil.example.com/app"])
def test_a_name_without_a_server_has_no_capital_letters(image: str) -> None:
    with pytest.raises(InvalidApp, match=r"write \[SERVER/\]NAME"):
        check_new_app(NewApp(name="web", image=image))


@pytest.mark.parametrize(
    "image", ["Evil:5000/app", "EVIL.example.com/app:Tag", "localhost/app", "shop/web:1", "nginx"]
)
def test_a_server_has_a_dot_or_a_port_or_is_localhost(image: str) -> None:
    check_new_app(NewApp(name="web", image=image))


async def rebuilt(apps: Apps) -> None:
    await apps.rebuild("web", ASKER)


async def rolled_back(apps: Apps) -> None:
    await apps.rollback("web", 1, ASKER)


@pytest.mark.parametrize("change", [rebuilt, rolled_back])
async def test_an_app_from_before_goes_on_and_is_not_rebuilt_or_rolled_back(
    tmp_path: Path, change: Callable[[Apps], Awaitable[None]]
) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image="shop:1"), ASKER)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        changed = await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        assert (changed.env, changed.state) == ({"A": "1"}, "running")
        with pytest.raises(ImageNotAllowed):
            await change(apps)
        assert (await apps.queries.one("web")).env == {"A": "1"}
