"""Images while changes, pulls and rollbacks need them, and images that are gone."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.apps.errors import OperationCancelled, StartFailed
from agent.engine.errors import ImageNotFound, ImageUnavailable
from agent.model import AppChanges
from tests.support.agent.apps.pulled_apps import (
    ONE,
    TWO,
    apps_of,
    create,
    settled,
    until_here,
    update,
)
from tests.support.agent.engines.fake_engine import IMAGE, IMAGE_IDS, fake_image
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow


async def test_no_image_goes_while_a_change_needs_it_and_any_other_does(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulled, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before create volume":
            pulled.set()
            await go_on.wait()

    async with apps_of(tmp_path, engine) as apps:
        engine.at_step = hold
        creation = asyncio.ensure_future(create(apps))
        await pulled.wait()
        engine.at_step = lambda _: asyncio.sleep(0)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        go_on.set()
        await creation
        await settled(apps, engine)

        assert engine.here() == {"p1"}
        assert (await apps.queries.one("web")).state == "running"


async def test_while_an_image_is_pulled_that_one_stays_and_others_go(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulling, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before pull":
            pulling.set()
            await go_on.wait()

    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        engine.at_step = hold
        creation = asyncio.ensure_future(create(apps))
        await pulling.wait()
        engine.at_step = lambda _: asyncio.sleep(0)
        engine.stuck.clear()
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        go_on.set()
        await creation
        await apps.delete("web", ASKER)
        await until_here(engine)


async def test_a_creation_that_fails_once_its_image_was_pulled_again_leaves_no_volume(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def remove(step: str) -> None:
        if step == "after create volume":
            for name in (ONE, "p1", "s/app@sha256:p1"):
                engine.untag(name)
        if step == "before start":
            raise ImageUnavailable("it does not start")

    async with apps_of(tmp_path, engine) as apps:
        engine.at_step = remove
        with pytest.raises(StartFailed, match="does not start"):
            await create(apps)
        assert engine.state.volumes == {}
    assert engine.pulls == [ONE, ONE]


async def test_an_image_that_is_removed_before_an_updated_container_is_made_is_pulled_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def remove(step: str) -> None:
        if step == "before create":
            engine.at_step = lambda _: asyncio.sleep(0)
            for name in (TWO, "p2", "s/app@sha256:p2"):
                engine.untag(name)

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = remove
        await update(apps, TWO)

        assert (await apps.queries.one("web")).image_id == "p2"
    assert engine.pulls == [ONE, TWO, TWO]


async def test_a_change_waits_for_the_removal_of_its_image_and_pulls_it_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    removing, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before remove image":
            removing.set()
            await go_on.wait()

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = hold
        await apps.delete("web", ASKER)
        await removing.wait()
        creation = asyncio.ensure_future(create(apps))
        await asyncio.sleep(0.05)
        go_on.set()
        await creation

        assert engine.here() == {"p1"}
    assert engine.pulls == [ONE, ONE]


async def test_a_revision_names_the_server_of_its_own_reference(
    tmp_path: Path, engine: PullingEngine
) -> None:
    first, ours = "a.example/app@sha256:p1", "s/app@sha256:p1"
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        # The image is also on another server, and its tag has moved.
        of_both = replace(engine.served[ONE], digest=first, digests=(first, ours))
        engine.tag("p1", of_both)
        engine.tag(ONE, replace(of_both, id="moved", digests=()))
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        history = await apps.history("web")

    assert [(each.image_id, each.digest) for each in history] == [("p1", ours), ("p1", ours)]


async def test_an_image_that_is_gone_is_pulled_by_its_digest(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.serve({ONE: "newer"})
        await apps.rebuild("web", ASKER)
        for name in ("p1", "s/app@sha256:p1"):
            engine.untag(name)
        back = await apps.rollback("web", None, ASKER)
        history = await apps.history("web")

        assert (back.image_id, back.image, back.revision) == ("p1", ONE, 3)
        assert engine.pulls == [ONE, ONE, "s/app@sha256:p1"]
        assert [each.digest for each in history] == [
            "s/app@sha256:p1",
            "s/app@sha256:newer",
            "s/app@sha256:p1",
        ]
        await apps.delete("web", ASKER)
        await until_here(engine)


@pytest.mark.parametrize(
    "forget",
    ["UPDATE revisions SET digest = NULL", "UPDATE revisions SET digest = NULL, image_id = NULL"],
)
async def test_the_image_of_an_app_of_an_earlier_version_is_found_out_at_the_first_look(
    tmp_path: Path, engine: PullingEngine, forget: str
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, IMAGE, "local")
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute(forget)
    async with apps_of(tmp_path, engine) as apps:

        async def is_known() -> bool:
            (web,) = await apps.history("web")
            (local,) = await apps.history("local")
            return (web.image_id, web.digest, local.image_id, local.digest) == (
                *("p1", "s/app@sha256:p1"),
                *(IMAGE_IDS[IMAGE], None),
            )

        await async_until(is_known)


async def test_a_stop_ends_a_rollback_that_pulls_and_nothing_of_it_is_left(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulling = asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before pull":
            pulling.set()
            await asyncio.Event().wait()

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        for name in (ONE, "p1", "s/app@sha256:p1"):
            engine.untag(name)
        engine.at_step = hold
        rollback = asyncio.ensure_future(apps.rollback("web", 1, ASKER))
        await pulling.wait()
        busy = await apps.queries.one("web")
        stopped = await apps.stop("web", ASKER)
        with pytest.raises(OperationCancelled, match="the rollback of app `web` was cancelled"):
            await rollback

    assert busy.progress is not None
    assert (busy.state, busy.progress.operation) == ("updating", "rollback")
    assert (stopped.image, stopped.revision, stopped.state) == (TWO, 2, "exited")


async def test_an_image_that_is_gone_for_good_leaves_the_app_as_it_is_and_says_the_way_out(
    tmp_path: Path, engine: PullingEngine
) -> None:
    local = "made-here:1"
    engine.tag(local, fake_image("m1"))
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, local)
        await update(apps, TWO)
        for name in (local, "m1", "p1", ONE, "s/app@sha256:p1"):
            engine.untag(name)
        engine.by_digest.clear()
        with pytest.raises(ImageNotFound, match=r"s/app@sha256:p1.*docker load"):
            await apps.rollback("web", 1, ASKER)
        with pytest.raises(ImageUnavailable, match=r"no digest at a server.*docker load"):
            await apps.rollback("web", 2, ASKER)

        record = await apps.queries.one("web")
        assert (record.state, record.image, record.revision) == ("running", TWO, 3)
