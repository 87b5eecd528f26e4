"""What the engine reports the containers of apps is reported, unless an operation caused it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import EngineUnavailable
from agent.engine.models import ContainerEvent, EngineInfo
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.engines.flaky_engine import Flaky
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, reported, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow


async def test_what_an_operation_causes_is_not_reported_as_the_engines_own(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()

        async def die_late(step: str) -> None:
            if step == "after stop":
                engine.happen("kill", container)
                engine.happen("die", container, exit_code=143)

        engine.at_step = die_late
        await apps.stop("web", ASKER)
        engine.happen("oom", container)
        await async_until(lambda: _oom_is_reported(apps))

        assert await reported(apps) == [
            ("operator", "create", "done"),
            ("operator", "stop", "done"),
            ("engine", "oom", None),
        ]


async def _oom_is_reported(apps: AskedApps) -> bool:
    return ("engine", "oom", None) in await reported(apps)


async def test_a_crash_while_an_operation_of_the_app_pulls_is_reported(tmp_path: Path) -> None:
    engine, may_go_on = PullingEngine(), asyncio.Event()
    engine.serve({"served:1": "s1"})
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image="served:1"), ASKER)
        (container,) = engine.state.containers.values()

        async def wait(step: str) -> None:
            if step == "before pull":
                await may_go_on.wait()

        engine.at_step = wait
        rebuilding = asyncio.create_task(apps.rebuild("web", ASKER))
        await async_until(lambda: _is_busy(apps))
        engine.happen("die", container, exit_code=7)
        engine.happen("start", container)
        await async_until(lambda: _started_by_engine(apps))
        may_go_on.set()
        await rebuilding
        events = await apps.events("web")

    assert [(each.by, each.action, each.exit_code) for each in events] == [
        ("operator", "create", None),
        ("engine", "die", 7),
        ("engine", "start", None),
        ("operator", "rebuild", None),
    ]


async def _is_busy(apps: AskedApps) -> bool:
    return (await apps.queries.one("web")).progress is not None


async def _started_by_engine(apps: AskedApps) -> bool:
    return ("engine", "start", None) in await reported(apps)


async def test_what_a_label_recovers_before_it_is_not_reported_as_the_engines_own(
    tmp_path: Path,
) -> None:
    engine = Flaky("start")
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (old,) = engine.state.containers.values()
        engine.call = "start"
        with pytest.raises(EngineUnavailable):
            await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        engine.call = None

        async def tell(step: str) -> None:
            if step == "after start":
                engine.happen("start", old)

        engine.at_step = tell
        await apps.add_label("web", "a:b", ASKER)
        engine.happen("oom", old)
        await async_until(lambda: _oom_is_reported(apps))

        assert ("engine", "start", None) not in await reported(apps)


class RememberingEngine(FakeEngine):
    """An engine that shows who connects again what has happened since a time, as a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.past = list[ContainerEvent]()
        self.live = asyncio.Queue[ContainerEvent | None]()
        self.connections = 0
        self.is_back = asyncio.Event()
        self.is_back.set()

    async def info(self) -> EngineInfo:
        await self.is_back.wait()
        return await super().info()

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        del label
        self.connections += 1
        self.live = asyncio.Queue()
        for past in [each for each in self.past if each.time >= since]:
            yield past
        while event := await self.live.get():
            yield event

    def tell(self, container: FakeContainer, exit_code: int) -> None:
        event = ContainerEvent(
            action="die",
            container_id=container.id,
            app=container.labels["rollcall.app"],
            time=time.time(),
            exit_code=exit_code,
        )
        self.past.append(event)
        self.live.put_nowait(event)


async def test_what_happens_while_the_connection_to_the_engine_is_lost_is_reported_once(
    tmp_path: Path,
) -> None:
    engine = RememberingEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:

        async def exit_codes() -> list[int | None]:
            return [each.exit_code for each in await apps.events("web") if each.action == "die"]

        async def has_reported(*expected: int) -> bool:
            return await exit_codes() == [*expected]

        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        engine.tell(container, 1)
        await async_until(lambda: has_reported(1))
        engine.is_back.clear()
        engine.live.put_nowait(None)
        await asyncio.sleep(0)
        engine.tell(container, 2)
        engine.is_back.set()
        await async_until(lambda: has_reported(1, 2))
        engine.tell(container, 3)
        await async_until(lambda: has_reported(1, 2, 3))

    assert engine.connections == 2


async def test_containers_that_are_not_the_apps_and_other_actions_are_not_reported(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        copied = type(container)(**{**_fields(container), "id": "copy"})
        engine.happen("die", copied, exit_code=1)
        engine.happen("rename", container)
        engine.happen("pause", container)
        await async_until(lambda: _paused_is_reported(apps))

        assert [each[1] for each in await reported(apps)] == ["create", "pause"]


async def _paused_is_reported(apps: AskedApps) -> bool:
    return ("engine", "pause", None) in await reported(apps)


def _fields(container: Any) -> dict[str, Any]:
    return {name: getattr(container, name) for name in container.__struct_fields__}


async def test_an_app_that_crashes_in_a_loop_has_a_bounded_number_of_events(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        for number in range(1500):
            engine.happen("die", container, exit_code=number % 256)
            if number % 500 == 0:
                await asyncio.sleep(0.3)
        await async_until(lambda: _last_is_reported(apps))
        assert [each.action for each in await apps.events("web")] == ["create"] + ["die"] * 500


async def _last_is_reported(apps: AskedApps) -> bool:
    events = await apps.events("web")
    return len(events) > 500 and events[-1].exit_code == 1499 % 256
