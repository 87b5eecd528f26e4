"""Each operation that did something is told once, with how it ended, in the same write."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppError, AppNotFound
from agent.apps.service.apps import Apps
from agent.apps.views.apps import AppView
from agent.apps.views.events import event_view
from agent.engine.errors import EngineUnavailable
from agent.engine.models import ContainerEvent, EngineInfo
from agent.model import AppChanges, NewApp
from agent.state.events import EVENT_DECODER
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    FakeContainer,
    FakeEngine,
)
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow
PASSWORD = "correct horse battery"


async def told(apps: Apps, name: str = "web") -> list[tuple[Any, ...]]:
    """Return who did what to an app, and how it ended."""
    return [(each.by, each.action, each.outcome) for each in await apps.events(name)]


async def test_each_operation_is_told_with_its_outcome(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(memory=64, description="Shop"), ASKER)
        await apps.update("web", AppChanges(env={"TOKEN": "s3cret"}), ASKER)
        await apps.update("web", AppChanges(description="Shop 2"), ASKER)
        await apps.add_label("web", "a:b", ASKER)
        await apps.set_password("web", PASSWORD, ASKER)
        await apps.rebuild("web", ASKER)
        await apps.stop("web", ASKER)
        await apps.start("web", ASKER)
        events = await apps.events("web")

    assert [(each.by, each.action, each.outcome, each.changed) for each in events] == [
        ("operator", "create", "done", ()),
        ("operator", "update", "done", ("memory", "description")),
        ("operator", "update", "done", ("env",)),
        ("operator", "update", "done", ("description",)),
        ("operator", "label", "done", ("labels",)),
        ("operator", "keys", "done", ()),
        ("operator", "rebuild", "done", ()),
        ("operator", "stop", "done", ()),
        ("operator", "start", "done", ()),
    ]
    assert not any("s3cret" in repr(each) or PASSWORD in repr(each) for each in events)


async def test_an_event_names_the_revision_that_its_operation_made(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(description="Shop", env={"A": "b"}), ASKER)
        await apps.add_label("web", "team:one", ASKER)
        await apps.rollback("web", None, ASKER)
        events = await apps.events("web")
        newest = (await apps.history("web"))[0]

    assert [(each.action, each.revision, each.message) for each in events] == [
        ("create", 1, None),
        ("update", 2, None),
        ("label", None, None),
        ("rollback", 3, "back to revision 1"),
    ]
    assert set(events[-1].changed) == set(newest.changed) == {"description", "env"}


async def test_what_changes_nothing_or_is_refused_at_once_is_no_event(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.start("web", ASKER)
        await apps.update("web", AppChanges(cpu=50), ASKER)
        with pytest.raises(AppError):
            await apps.update("web", AppChanges(cpu=100_000), ASKER)

        assert await told(apps) == [("operator", "create", "done")]


async def test_whoever_is_told_of_an_operation_and_asks_at_once_gets_the_app_as_it_left_it(
    tmp_path: Path,
) -> None:
    answers = list[asyncio.Task[AppView]]()
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        apps.feed.subscribe(lambda: answers.append(asyncio.create_task(apps.get("web"))))
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(description="Shop"), ASKER)
        await apps.update("web", AppChanges(env={"A": "b"}), ASKER)
        await apps.rollback("web", None, ASKER)
        await apps.stop("web", ASKER)
        await apps.delete("web", ASKER)
        *seen, gone = await asyncio.gather(*answers, return_exceptions=True)

    assert isinstance(gone, AppNotFound)
    records = [each for each in seen if isinstance(each, AppView)]
    assert [(each.state, each.description, each.env, each.revision) for each in records] == [
        ("running", "", {}, 1),
        ("running", "Shop", {}, 2),
        ("running", "Shop", {"A": "b"}, 3),
        ("running", "Shop", {}, 4),
        ("exited", "Shop", {}, 4),
    ]
    assert [each.progress for each in records] == [None] * 5


async def test_an_operation_that_fails_is_told_with_the_reason(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        with pytest.raises(AppError):
            await apps.create(NewApp(name="web", image=BROKEN_IMAGE), ASKER)
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        with pytest.raises(AppError, match="no such program"):
            await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        events = await apps.events("web")

        assert await told(apps) == [
            ("operator", "create", "failed"),
            ("operator", "create", "done"),
            ("operator", "update", "failed"),
        ]
    assert "no such program" in str(events[2].message)
    assert events[2].changed == ()


async def test_the_output_of_an_app_that_does_not_stay_up_is_in_no_event(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def end(step: str) -> None:
        if step == "after start":
            for container in engine.state.containers.values():
                container.state = "exited"

    engine.at_step = end
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        with pytest.raises(AppError, match="it wrote: a line of web"):
            await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (event,) = await apps.events("web")

    assert "does not stay up" in str(event.message)
    assert "a line of web" not in str(event.message)


async def test_events_outlive_a_restart_and_the_app(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.delete("web", ASKER)
        before = await apps.events("web")
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert await apps.events("web") == before
        assert [each.action for each in before] == ["create", "delete"]
        with pytest.raises(AppNotFound):
            await apps.events("never")


class Flaky(FakeEngine):
    """An engine that goes away before one call, until it is back."""

    def __init__(self, call: str) -> None:
        super().__init__(at_step=self._away_at)
        self.call: str | None = None
        self._step_away = f"before {call}"

    async def _away_at(self, step: str) -> None:
        if self.call is not None and step == self._step_away:
            raise EngineUnavailable("away")


@pytest.mark.parametrize(
    ("call", "outcome"), [("create", "failed"), ("remove", "done")], ids=["undone", "finished"]
)
async def test_an_operation_that_broke_off_is_told_once_when_it_is_recovered(
    tmp_path: Path, call: str, outcome: str
) -> None:
    engine = Flaky(call)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.call = call
        with pytest.raises(EngineUnavailable):
            await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        assert await told(apps) == [("operator", "create", "done")]

    engine.call = None
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert await told(apps) == [
            ("operator", "create", "done"),
            ("operator", "update", outcome),
        ]


async def test_what_the_agent_does_by_itself_is_told_with_the_reason(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        container.state = "exited"
        engine.happen("die", container, exit_code=137)
        await async_until(lambda: _up_again(apps))
        events = await apps.events("web")

    assert [(each.by, each.action, each.outcome, each.exit_code) for each in events] == [
        ("operator", "create", "done", None),
        ("engine", "die", None, 137),
        ("agent", "start", "done", None),
    ]
    assert events[2].message == "it was down"


async def _up_again(apps: Apps) -> bool:
    return ("agent", "start", "done") in await told(apps)


async def test_an_event_tells_a_key_from_the_agent_and_the_engine_whatever_the_key_is_called(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), replace(ASKER, name="agent"))
        await apps.add_label("web", "a:b", replace(ASKER, name="engine"))
        (container,) = engine.state.containers.values()
        container.state = "exited"
        engine.happen("die", container, exit_code=137)
        await async_until(lambda: _up_again(apps))
        events = await apps.events("web")

    assert [(each.by, each.actor, each.action) for each in events] == [
        ("agent", "key", "create"),
        ("engine", "key", "label"),
        ("engine", "engine", "die"),
        ("agent", "agent", "start"),
    ]


@pytest.mark.parametrize(("by", "actor"), [("agent", "agent"), ("engine", "engine"), ("x", "key")])
def test_an_event_of_an_earlier_version_tells_its_actor_by_the_name(by: str, actor: str) -> None:
    row = msgspec.json.encode({"time": 1.5, "app": "web", "by": by, "action": "start"})

    assert event_view(EVENT_DECODER.decode(row)).actor == actor


async def test_what_an_operation_causes_is_not_told_as_the_engines_own(tmp_path: Path) -> None:
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
        await async_until(lambda: _oom_is_told(apps))

        assert await told(apps) == [
            ("operator", "create", "done"),
            ("operator", "stop", "done"),
            ("engine", "oom", None),
        ]


async def _oom_is_told(apps: Apps) -> bool:
    return ("engine", "oom", None) in await told(apps)


async def test_a_crash_while_an_operation_of_the_app_pulls_is_told(tmp_path: Path) -> None:
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


async def _is_busy(apps: Apps) -> bool:
    return (await apps.get("web")).progress is not None


async def _started_by_engine(apps: Apps) -> bool:
    return ("engine", "start", None) in await told(apps)


async def test_what_a_label_recovers_before_it_is_not_told_as_the_engines_own(
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
        await async_until(lambda: _oom_is_told(apps))

        assert ("engine", "start", None) not in await told(apps)


class RememberingEngine(FakeEngine):
    """An engine that tells who connects again what has happened since a time, as a real one."""

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


async def test_what_happens_while_the_connection_to_the_engine_is_lost_is_told_once(
    tmp_path: Path,
) -> None:
    engine = RememberingEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:

        async def exit_codes() -> list[int | None]:
            return [each.exit_code for each in await apps.events("web") if each.action == "die"]

        async def has_told(*expected: int) -> bool:
            return await exit_codes() == [*expected]

        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        engine.tell(container, 1)
        await async_until(lambda: has_told(1))
        engine.is_back.clear()
        engine.live.put_nowait(None)
        await asyncio.sleep(0)
        engine.tell(container, 2)
        engine.is_back.set()
        await async_until(lambda: has_told(1, 2))
        engine.tell(container, 3)
        await async_until(lambda: has_told(1, 2, 3))

    assert engine.connections == 2


async def test_containers_that_are_not_the_apps_and_other_actions_are_not_told(
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
        await async_until(lambda: _paused_is_told(apps))

        assert [each[1] for each in await told(apps)] == ["create", "pause"]


async def _paused_is_told(apps: Apps) -> bool:
    return ("engine", "pause", None) in await told(apps)


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
        await async_until(lambda: _thousand(apps))
        assert [each.action for each in await apps.events("web")] == ["die"] * 1000


async def _thousand(apps: Apps) -> bool:
    events = await apps.events("web")
    return len(events) == 1000 and events[-1].exit_code == 1499 % 256
