"""Many events of the engine make few looks at it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.upkeep.watcher import MIN_PAUSE_SECONDS
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

pytestmark = pytest.mark.slow
EVENTS = 100
LISTS_OF_A_LOOK = 3  # at most: to recover, to sweep, to adopt


class CountingEngine(FakeEngine):
    """Counts how often all volumes are listed."""

    lists = 0

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        """List volumes."""
        self.lists += label is None
        return await super().volumes(label=label)


async def test_the_apps_are_compared_at_most_ten_times_a_second(tmp_path: Path) -> None:
    engine, loop = CountingEngine(), asyncio.get_running_loop()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        before, began = engine.lists, loop.time()

        for _ in range(EVENTS):
            engine.happen("unpause", container)
            await asyncio.sleep(MIN_PAUSE_SECONDS / 10)

        lists, seconds = engine.lists - before, loop.time() - began

    # One look at each end may be begun or ended outside.
    looks = seconds / MIN_PAUSE_SECONDS + 2
    assert 1 <= lists <= LISTS_OF_A_LOOK * looks
