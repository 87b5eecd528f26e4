"""The images that the agent pulled stay for the revisions that are kept, and then go."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import ImageUnavailable
from agent.model import AppChanges
from agent.state.history import MOST_REVISIONS
from tests.support.agent.apps.pulled_apps import (
    ONE,
    TWO,
    apps_of,
    create,
    settled,
    until_here,
    update,
)
from tests.support.agent.engines.fake_engine import IMAGE
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER

pytestmark = pytest.mark.slow


async def test_the_images_of_kept_revisions_stay_and_go_with_the_app(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        await settled(apps, engine)
        assert engine.here() == {"p1", "p2"}
        await apps.delete("web", ASKER)
        await until_here(engine)


async def test_an_image_goes_with_the_last_revision_that_has_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        for number in range(MOST_REVISIONS - 2):
            await apps.update("web", AppChanges(description=str(number)), ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1", "p2"}
        await apps.update("web", AppChanges(description="one more"), ASKER)
        await until_here(engine, "p2")

        assert (await apps.queries.one("web")).state == "running"


async def test_an_image_that_an_update_pulled_in_vain_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def fail(step: str) -> None:
        if step == "before start":
            raise ImageUnavailable("it does not start")

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = fail
        with pytest.raises(Exception, match="does not start"):
            await update(apps, TWO)
        await until_here(engine, "p1")


@pytest.mark.parametrize("by_hand", [ONE, "s/app@sha256:p1", "s/app:other"])
async def test_what_the_agent_did_not_pull_stays(
    tmp_path: Path, engine: PullingEngine, by_hand: str
) -> None:
    engine.bring(by_hand, engine.served[ONE])
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, IMAGE, "local")
        await apps.delete("web", ASKER)
        await apps.delete("local", ASKER)
        await settled(apps, engine)

        assert engine.here() == {"p1"}
        assert await engine.image(IMAGE) is not None


async def test_while_the_images_cannot_be_listed_others_are_pulled_and_those_known_go(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        engine.unlistable = True
        await create(apps, TWO, "other")
        await apps.delete("other", ASKER)
        await apps.delete("web", ASKER)
        # Nobody knows whether the second was here before.
        await until_here(engine, "p2")

    reported = [each for each in log.entries if each["log_level"] == "warning"]
    assert [(each["event"], each["image"]) for each in reported] == [
        ("image is pulled, and not removed later", TWO)
    ]


async def test_what_somebody_removed_and_pulled_again_is_theirs(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
    engine.untag("p1")
    for name in (ONE, "s/app@sha256:p1"):
        engine.untag(name)
    async with apps_of(tmp_path, engine) as apps:
        await settled(apps, engine)
        engine.bring(ONE, engine.served[ONE])
        await apps.delete("web", ASKER)
        await settled(apps, engine)

        assert engine.here() == {"p1"}


async def test_an_image_with_the_tag_of_somebody_else_stays(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        image = await engine.image(ONE)
        assert image is not None
        engine.bring("mine:keep", image)
        await apps.delete("web", ASKER)
        await settled(apps, engine)

    assert engine.here() == {"p1"}
    reported = [each["reason"] for each in log.entries if each["event"] == "image not removed yet"]
    assert reported == ["it has a tag that the agent did not give it"]


async def test_a_tag_that_somebody_else_gives_an_image_while_it_is_pulled_keeps_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def tag(step: str) -> None:
        if step == "after pull":
            engine.at_step = lambda _: asyncio.sleep(0)
            engine.bring("mine:1", engine.served[ONE])

    engine.at_step = tag
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)

        image = await engine.image("mine:1")
        assert image is not None
        assert image.tags == {ONE, "mine:1"}


async def test_the_tag_of_a_pull_is_the_agents_however_the_reference_is_written(
    tmp_path: Path, engine: PullingEngine
) -> None:
    short, full = "shop", "docker.io/library/shop:latest"
    engine.serve({"shop:latest": "p4"})
    engine.served |= {short: engine.served["shop:latest"], full: engine.served["shop:latest"]}
    engine.full_tags = {short: "shop:latest", full: "shop:latest"}
    async with apps_of(tmp_path, engine) as apps:
        for reference in (short, full):
            await create(apps, reference)
            assert engine.here() == {"p4"}
            await apps.delete("web", ASKER)
            await until_here(engine)


async def test_an_image_with_two_tags_of_the_agent_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    engine.served["s/app:latest"] = engine.served[ONE]
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, "s/app:latest", "second")
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        await apps.delete("second", ASKER)
        await until_here(engine)


async def test_an_image_that_a_container_of_anybody_uses_stays(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        engine.state.containers["theirs"] = FakeContainer(
            id="theirs",
            name="theirs",
            image=ONE,
            labels={},
            env={},
            ports=[],
            volumes={},
            cpu=100,
            memory=64,
            image_id="p1",
            state="exited",
        )
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        # It was not even asked for: not every engine rejects it for a container that is stopped.
        assert "image not removed yet" not in [each["event"] for each in log.entries]
        del engine.state.containers["theirs"]
        await settled(apps, engine)
        await until_here(engine)


async def test_a_removal_that_fails_is_logged_once_and_tried_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        engine.stuck.clear()
        await settled(apps, engine)
        await until_here(engine)

    reported = [each for each in log.entries if each["event"] == "image not removed yet"]
    assert [each["log_level"] for each in reported] == ["warning"]
    assert "p1" in [each["image"] for each in log.entries if each["event"] == "image removed"]


async def test_what_is_left_when_the_agent_ends_goes_at_its_next_start(
    tmp_path: Path, engine: PullingEngine
) -> None:
    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
    engine.stuck.clear()
    async with apps_of(tmp_path, engine):
        await until_here(engine)
