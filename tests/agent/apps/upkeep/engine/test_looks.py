"""How often an agent looks at all containers, and what an engine does late."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.labels import APP_LABEL, HELPER_LABEL, HELPS
from agent.apps.upkeep.watcher import MIN_PAUSE_SECONDS
from agent.engine.errors import EngineTimeout
from agent.engine.models import Container, ContainerSpec
from agent.model import AppChanges, NewApp
from tests.support.agent.consistency import (
    BACKGROUND,
    NEW,
    check,
    run_to_its_end,
)
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeEngineState
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until

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


class LateEngine(FakeEngine):
    """An engine that does the first call of a kind when the same is asked for again."""

    def __init__(self) -> None:
        super().__init__()
        self.late = ""
        self._asked = 0

    async def create(self, spec: ContainerSpec) -> str:
        if await self._is_again("create"):
            await super().create(spec)
        return await super().create(spec)

    async def rename(self, container_id: str, name: str) -> None:
        if await self._is_again("rename"):
            await super().rename(container_id, name)
        await super().rename(container_id, name)

    async def _is_again(self, call: str) -> bool:
        if call != self.late:
            return False
        self._asked += 1
        if self._asked == 1:
            raise EngineTimeout("the container engine does not answer in time")
        return self._asked == 2


async def test_a_container_that_is_made_late_is_the_one_of_the_operation_that_asked_for_it(
    tmp_path: Path,
) -> None:
    engine = LateEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        engine.late = "create"

        await run_to_its_end(lambda apps: apps.create(NEW, BACKGROUND), apps)

        await check(apps, engine)
        assert [(each.state, each.image) for each in await apps.queries.all()] == [
            ("running", IMAGE)
        ]


async def test_a_container_that_is_renamed_late_has_its_name(tmp_path: Path) -> None:
    engine, log = LateEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        await apps.create(NEW, ASKER)
        engine.late = "rename"

        await run_to_its_end(
            lambda apps: apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER), apps
        )

        await check(apps, engine)
        assert [each.image for each in await apps.queries.all()] == [OTHER_IMAGE]
        failed = [each for each in log.entries if each["event"] == "operation failed"]
        assert len(failed) == 1  # the update, and not its recovery
        await apps.rebuild("web", ASKER)


class CountedLists(FakeEngine):
    """Counts the lists of containers by their label, and those of volumes and of users of one."""

    def __init__(self, state: FakeEngineState) -> None:
        super().__init__(state)
        self.lists = Counter[str | None]()

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        self.lists[label] += 1
        return await super().containers(label=label, seconds=seconds)

    async def volume_users(self, name: str) -> list[Container]:
        self.lists["volume users"] += 1
        return await super().volume_users(name)

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        self.lists["volumes" if label is None else label] += 1
        return await super().volumes(label=label)


async def test_a_look_that_finds_nothing_to_do_lists_containers_and_volumes_once(
    tmp_path: Path,
) -> None:
    fake = FakeEngine()
    async with running_apps(tmp_path, fake, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
    (container,) = fake.state.containers.values()

    engine = CountedLists(fake.state)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE):
        engine.happen("start", container)

        async def has_looked() -> bool:
            # A look ends with the containers by which data is read.
            looks = engine.lists[f"{HELPER_LABEL}={HELPS}"]
            return looks >= 3 and engine.lists["volumes"] == engine.lists[APP_LABEL] == looks

        await async_until(has_looked)
