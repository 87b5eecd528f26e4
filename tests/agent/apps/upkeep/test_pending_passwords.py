"""A password that waits for its app to run keeps no other app waiting."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.upkeep.keeper import FIRST_PAUSE_SECONDS
from agent.apps.upkeep.reconciler import RECONCILE_SECONDS
from agent.engine.errors import EngineRejected
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

PASSWORD = "a good password"


def container_of(engine: FakeEngine, name: str) -> FakeContainer:
    return next(each for each in engine.state.containers.values() if each.name == name)


async def stop_with_pending_password(apps: AskedApps, name: str) -> None:
    """Create an app, and set its password while it is stopped."""
    await apps.create(NewApp(name=name, image=IMAGE), ASKER)
    await apps.stop(name, ASKER)
    await apps.set_password(name, PASSWORD, ASKER)


async def until_state(apps: AskedApps, name: str, state: str) -> None:
    async def reached() -> bool:
        return (await apps.queries.one(name)).state == state

    await async_until(reached)


@pytest.mark.slow
async def test_an_app_is_started_while_the_password_of_another_cannot_be_set(
    tmp_path: Path,
) -> None:
    engine, began, may_end = FakeEngine(), asyncio.Event(), asyncio.Event()

    async def hang(step: str) -> None:
        if step == "before execute":
            began.set()
            await may_end.wait()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await stop_with_pending_password(apps, "stuck")
        engine.at_step = hang
        stuck, web = container_of(engine, "stuck"), container_of(engine, "web")
        stuck.state = "running"
        engine.happen("start", stuck)
        await began.wait()
        try:
            web.state = "exited"
            engine.happen("die", web)
            await until_state(apps, "web", "running")
            waiting = await apps.queries.one("stuck")
        finally:
            may_end.set()

        async def is_set() -> bool:
            return (await apps.queries.one("stuck")).password == "set"

        await async_until(is_set)

    assert waiting.password == "pending"
    assert stuck.shadow.startswith("app:$6$")


@pytest.mark.slow
async def test_a_defect_in_the_setting_of_a_password_is_interrupted_no_comparison_with_the_engine(
    tmp_path: Path,
) -> None:
    engine, log = FakeEngine(), LogCapture()

    async def fail(step: str) -> None:
        if step == "before execute":
            raise RuntimeError(step)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await stop_with_pending_password(apps, "stuck")
    container_of(engine, "stuck").state = "running"
    engine.at_step = fail
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:

        async def failed() -> bool:
            return "operation failed by a defect" in {each["event"] for each in log.entries}

        await async_until(failed)
        record = await apps.queries.one("stuck")

    assert (record.state, record.password) == ("running", "pending")
    assert "comparing apps with the engine failed" not in {each["event"] for each in log.entries}


@pytest.mark.slow
async def test_passwords_that_cannot_be_set_are_tried_again_after_a_pause(tmp_path: Path) -> None:
    engine, names, tries = FakeEngine(), ("one", "two", "three"), list[float]()
    # So that each ends while another one runs.
    seconds = itertools.cycle((0.31, 0.47, 0.41))

    async def reject(step: str) -> None:
        if step == "before execute":
            tries.append(time.monotonic())
            await asyncio.sleep(next(seconds))
            raise EngineRejected("no such runtime")

    async def all_and_one_again() -> bool:
        return len(tries) > len(names)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in names:
            await stop_with_pending_password(apps, name)
        engine.at_step = reject
        for name in names:
            container_of(engine, name).state = "running"
            engine.happen("start", container_of(engine, name))
        await async_until(all_and_one_again)

    assert tries[len(names)] - tries[0] >= 2 * FIRST_PAUSE_SECONDS


@pytest.mark.slow
async def test_a_password_that_was_rejected_is_tried_again_before_the_next_regular_comparison(
    tmp_path: Path,
) -> None:
    engine, tries = FakeEngine(), list[float]()

    async def reject(step: str) -> None:
        if step == "before execute":
            tries.append(time.monotonic())
            raise EngineRejected("no space left on device")

    async def tried_three_times() -> bool:
        return len(tries) == 3

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = reject
        await apps.set_password("web", PASSWORD, ASKER)

        await async_until(tried_three_times, within=RECONCILE_SECONDS / 2)

    assert tries[2] - tries[0] >= (1 + 2) * FIRST_PAUSE_SECONDS
