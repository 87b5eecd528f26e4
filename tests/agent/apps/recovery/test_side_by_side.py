"""Many operations that broke off are recovered side by side, and not all at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

from structlog.testing import LogCapture

from agent.apps import NewApp
from agent.apps.recovery.recovery import MAX_RECOVERIES
from agent.engine.protocol import EngineUnavailable
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS, async_until
from tests.support.agent.running_apps import ASKER, running_apps

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
NAMES = [f"web-{number}" for number in range(3 * MAX_RECOVERIES)]


async def test_a_bounded_number_of_operations_is_recovered_at_the_same_time(
    tmp_path: Path,
) -> None:
    engine, going, most = FakeEngine(), 0, 0

    async def break_off(step: str) -> None:
        if step == "before stop":
            raise EngineUnavailable("the engine went away")

    async def take_a_while(step: str) -> None:
        nonlocal going, most
        if step == "before stop":
            going += 1
            most = max(most, going)
            # Each waits for another, for as long as there is one.
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
            return {each.state for each in await apps.all()} == {"exited"}

        await async_until(recovered)

    assert most == MAX_RECOVERIES
