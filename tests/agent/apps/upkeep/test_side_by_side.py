"""Many operations that broke off are recovered side by side, and not all at once."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.upkeep.reconciler import MAX_RECOVERIES, RECONCILE_SECONDS, TURN_SECONDS
from agent.engine.errors import EngineUnavailable
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until

NAMES = [f"web-{number}" for number in range(3 * MAX_RECOVERIES)]


async def break_off(step: str) -> None:
    """Let the engine go away at each stop."""
    if step == "before stop":
        raise EngineUnavailable("the engine went away")


@pytest.mark.slow
async def test_a_bounded_number_of_operations_is_recovered_at_the_same_time(
    tmp_path: Path,
) -> None:
    engine, going, most = FakeEngine(), 0, 0

    async def take_a_while(step: str) -> None:
        nonlocal going, most
        if step == "before stop":
            going += 1
            most = max(most, going)
            await asyncio.sleep(0.05)
            going -= 1

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in NAMES:
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.at_step = break_off
        stops = [apps.stop(name, ASKER) for name in NAMES]
        await asyncio.gather(*stops, return_exceptions=True)

    engine.at_step = take_a_while
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def recovered() -> bool:
            return {each.state for each in await apps.queries.all()} == {"exited"}

        await async_until(recovered)

    assert most == MAX_RECOVERIES


@pytest.mark.slow
async def test_operations_whose_recovery_takes_long_keep_no_other_app_waiting(
    tmp_path: Path,
) -> None:
    engine, slow = FakeEngine(), NAMES[: MAX_RECOVERIES + 1]
    stopping, may_end = list[str](), asyncio.Event()

    async def take_long(step: str) -> None:
        if step == "before stop":
            stopping.append(step)
            await may_end.wait()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in (*slow, "down"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.at_step = break_off
        stops = [apps.stop(name, ASKER) for name in slow]
        await asyncio.gather(*stops, return_exceptions=True)
    down = next(each for each in engine.state.containers.values() if each.name == "down")
    down.state = "exited"

    engine.at_step = take_long
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def all_begun() -> bool:
            return (
                len(stopping) == len(slow) and (await apps.queries.one("down")).state == "running"
            )

        await async_until(all_begun)
        states = {each.name: each.state for each in await apps.queries.all()}
        may_end.set()

        async def recovered() -> bool:
            return [each.name for each in await apps.queries.all() if each.state == "running"] == [
                "down"
            ]

        await async_until(recovered)

    assert set(states.values()) == {"running"}


@pytest.mark.slow
async def test_a_recovery_that_takes_long_and_fails_is_soon_tried_again(tmp_path: Path) -> None:
    engine, attempts = FakeEngine(), list[str]()

    async def fail_late_once(step: str) -> None:
        if step == "before stop":
            attempts.append(step)
            if len(attempts) == 1:
                await asyncio.sleep(1.2 * TURN_SECONDS)
                raise EngineUnavailable("the engine went away")

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = break_off
        await asyncio.gather(apps.stop("web", ASKER), return_exceptions=True)

    engine.at_step = fail_late_once
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def recovered() -> bool:
            return (await apps.queries.one("web")).state == "exited"

        # Without being told, the watcher looks after RECONCILE_SECONDS.
        await async_until(recovered, within=RECONCILE_SECONDS / 2)

    assert len(attempts) == 2
