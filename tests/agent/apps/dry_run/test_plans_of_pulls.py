"""Dry runs of changes that pull an image, or that end a pull."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppError
from agent.apps.requests import Create, Delete, Stop, Update
from agent.engine.errors import ImageNotFound
from agent.engine.models import PullProgress
from agent.model import AppChanges, NewApp
from tests.support.agent.apps.changes import CHANGES, outcome, shown
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, fake_image
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

pytestmark = pytest.mark.slow


async def test_an_image_that_would_be_pulled_is_asked_for_and_not_pulled(tmp_path: Path) -> None:
    engine = ServedEngine({"served:1"})
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)

        planned = await apps.plan(Update("web", AppChanges(image="served:1")), ASKER)
        with pytest.raises(ImageNotFound, match=r"the image `other:1` cannot be had: unknown"):
            await apps.plan(Create("new", NewApp(name="new", image="other:1")), ASKER)

    assert engine.asked == ["served:1", "other:1"]
    assert planned.app is not None
    assert (planned.app.image, planned.app.image_id) == ("served:1", None)
    assert planned.message == "the image `served:1` is pulled"
    assert planned.app is not None
    record = msgspec.to_builtins(planned.app)
    assert (record["image_id"], record["volumes"]) == (None, None)


class ServedEngine(FakeEngine):
    """An engine that finds these images on a server, and must not pull them."""

    def __init__(self, served: set[str]) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._served = served

    async def find_manifest(self, reference: str) -> None:
        self.asked.append(reference)
        if reference not in self._served:
            raise ImageNotFound("unknown")

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del progress
        raise AssertionError(f"{reference} is pulled")


async def test_a_rollback_to_an_image_that_is_gone_asks_its_server_by_the_digest(
    tmp_path: Path,
) -> None:
    engine = PullingEngine()
    engine.serve({"served:1": "s1", "served:2": "s2"})
    digest = engine.served["served:1"].digest
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image="served:1"), ASKER)
        await apps.update("web", AppChanges(image="served:2"), ASKER)
        await engine.remove_image("s1")

        planned = await apps.plan(CHANGES["roll back"](), ASKER)
        assert (planned.replaces_container, planned.message) == (
            True,
            f"the image `{digest}` is pulled",
        )
        assert planned.app is not None
        assert (planned.app.image, planned.app.revision) == ("served:1", 3)
        assert (engine.here(), (await apps.queries.one("web")).revision) == ({"s2"}, 2)

        del engine.by_digest[str(digest)]
        planned_to_fail = await outcome(apps.plan(CHANGES["roll back"](), ASKER))
        assert planned_to_fail == await outcome(apps.change(CHANGES["roll back"](), ASKER))
        assert "is not on this host any more" in planned_to_fail[1]


class EndlessPullEngine(FakeEngine):
    """An engine that is told to pull, and never gets done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.pulling = asyncio.Event()

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        progress(PullProgress(done_bytes=0, total_bytes=1))
        self.pulling.set()
        await asyncio.sleep(3600)
        raise AssertionError(f"{reference} was not to be pulled")


async def test_a_delete_that_would_end_a_pull_says_so_and_ends_none(tmp_path: Path) -> None:
    engine, background = EndlessPullEngine(), replace(ASKER, respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1"), background)
        await engine.pulling.wait()

        planned = await apps.plan(Delete("new"), ASKER)

        assert planned.app is None
        assert (await apps.queries.one("new")).state == "pulling"
        await apps.delete("new", ASKER)


async def test_a_stop_that_would_cancel_a_creation_is_answered_so_by_its_dry_run(
    tmp_path: Path,
) -> None:
    engine, background = EndlessPullEngine(), replace(ASKER, respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1"), background)
        await engine.pulling.wait()

        planned = await outcome(apps.plan(Stop("new"), ASKER))

        assert (await apps.queries.one("new")).state == "pulling"
        assert planned == await outcome(apps.stop("new", ASKER))
        assert "its creation was cancelled" in planned[1]


async def test_a_stop_that_would_cancel_a_rebuild_shows_the_app_as_it_is_then(
    tmp_path: Path,
) -> None:
    engine = EndlessPullEngine()
    engine.tag("served:1", replace(fake_image("s1"), local=False))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1", pull="missing"), ASKER)
        rebuilding = asyncio.create_task(apps.rebuild("new", ASKER))
        await engine.pulling.wait()

        planned = await apps.plan(Stop("new"), ASKER)
        stopped = await apps.stop("new", ASKER)

        assert shown(planned.app) == shown(stopped)
        assert "was cancelled" in str(stopped.message)
        with pytest.raises(AppError, match="was cancelled"):
            await rebuilding
