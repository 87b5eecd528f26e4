"""An app that the engine restarted while the agent was away, and that runs, is not taken away."""

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.service.apps import Apps
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

SETTLING = replace(DEFAULTS, settle_seconds=0.2, min_free_percent=0)
NEW = NewApp(name="web", image=IMAGE)


def apps_of(
    folder: Path, engine: FakeEngine, *, drain_seconds: float = 0
) -> AbstractAsyncContextManager[Apps]:
    return running_apps(
        folder, engine, LogCapture(), defaults=SETTLING, drain_seconds=drain_seconds
    )


async def killed_after_the_start(folder: Path) -> FakeEngine:
    """Create an app, and end after its start; the database is in ``left``. Return its engine."""
    engine, after, reached = FakeEngine(), FakeEngine(), asyncio.Event()

    async def stop_here(step: str) -> None:
        if step == "after start":
            shutil.copytree(folder / "whole", folder / "left")
            after.state = deepcopy(engine.state)
            reached.set()
            await asyncio.Event().wait()

    async with apps_of(folder / "whole", engine) as apps:
        engine.at_step = stop_here
        request = asyncio.ensure_future(apps.create(NEW, ASKER))
        await reached.wait()
        request.cancel()
        await asyncio.wait([request])
    return after


async def until_settled(apps: Apps) -> None:
    async def settled() -> bool:
        return all(record.progress is None for record in await apps.queries.all())

    await async_until(settled)


@pytest.mark.slow
async def test_a_creation_whose_app_restarted_once_and_runs_is_finished(tmp_path: Path) -> None:
    engine = await killed_after_the_start(tmp_path)
    (container,) = engine.state.containers.values()
    container.restarts = 1

    async with apps_of(tmp_path / "left", engine, drain_seconds=20) as apps:
        await until_settled(apps)
        assert (await apps.queries.one("web")).state == "running"

    assert list(engine.state.volumes) == ["rollcall-web"]


@pytest.mark.slow
async def test_a_creation_whose_app_goes_on_restarting_is_undone(tmp_path: Path) -> None:
    engine = await killed_after_the_start(tmp_path)
    (container,) = engine.state.containers.values()
    container.restarts = 1

    async def crash(step: str) -> None:
        if step == "after start":
            container.restarts += 1

    engine.at_step = crash
    async with apps_of(tmp_path / "left", engine, drain_seconds=20) as apps:
        await until_settled(apps)
        assert await apps.queries.all() == []

    assert (engine.state.containers, engine.state.volumes) == ({}, {})
