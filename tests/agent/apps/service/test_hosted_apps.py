"""What the heartbeat reports apps, also while the engine does not answer."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.service.hosted_apps import HostedAppsQuery, ListContainers
from agent.apps.upkeep.serving import Serving
from agent.apps.upkeep.watcher import EngineState
from agent.engine.errors import EngineTimeout, EngineUnavailable
from agent.engine.models import Container
from agent.model import NewApp
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.machine.clocks import in_virtual_time
from tests.support.waiting import async_until


class FrozenEngine:
    """An engine that takes each question, and answers those that wait once it goes on."""

    def __init__(self) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()

    async def __call__(self, seconds: float | None) -> Mapping[str, Container]:
        self.asked += 1
        async with asyncio.timeout(seconds):
            await self.goes_on.wait()
        return {}


class UnavailableEngine:
    """An engine that is not there for a while, and then too slow for a while."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [EngineUnavailable("away"), EngineTimeout("too slow")]

    async def __call__(self, seconds: float | None) -> Mapping[str, Container]:
        assert seconds is None or seconds > 0
        if self.errors:
            raise self.errors.pop(0)
        return {}


def query_of(
    folder: Path,
    containers: ListContainers,
    *,
    on_change: Callable[[], None] = lambda: None,
) -> HostedAppsQuery:
    context = context_of(FakeEngine(), folder, on_change=on_change)
    return HostedAppsQuery(context, containers, EngineState(problem=None), Serving(context))


@in_virtual_time
async def test_a_frozen_engine_is_waited_for_once_and_its_answer_is_a_change(
    tmp_path: Path,
) -> None:
    engine, changed = FrozenEngine(), asyncio.Event()
    query = query_of(tmp_path, engine, on_change=changed.set)

    reported = [(await query.hosted_apps()).docker_state for _ in range(20)]
    await asyncio.sleep(0)
    assert reported == ["unreachable"] * 20
    assert engine.asked == 2  # the one that was waited for, and the one in the background

    engine.goes_on.set()
    await changed.wait()
    assert (await query.hosted_apps()).docker_state == "running"
    assert engine.asked == 2  # its answer is new enough, once
    assert (await query.hosted_apps()).docker_state == "running"
    assert engine.asked == 3
    await query.close()


@in_virtual_time
async def test_a_frozen_engine_is_waited_for_no_longer_than_the_heartbeat_may_take(
    tmp_path: Path,
) -> None:
    query = query_of(tmp_path, FrozenEngine())
    clock = asyncio.get_running_loop()
    began = clock.time()

    assert (await query.hosted_apps(1.5)).docker_state == "unreachable"

    assert clock.time() - began == pytest.approx(1.5)
    await query.close()


async def test_an_engine_that_rejects_at_once_is_asked_each_time(tmp_path: Path) -> None:
    changed = asyncio.Event()
    query = query_of(tmp_path, UnavailableEngine(), on_change=changed.set)

    assert (await query.hosted_apps()).docker_state == "unreachable"
    assert (await query.hosted_apps()).docker_state == "unreachable"
    await changed.wait()
    assert (await query.hosted_apps()).docker_state == "running"
    await query.close()


async def test_a_defect_does_not_end_the_asking(tmp_path: Path) -> None:
    engine = UnavailableEngine()
    engine.errors = [EngineTimeout("too slow"), KeyError("a defect")]
    query = query_of(tmp_path, engine)

    assert (await query.hosted_apps()).docker_state == "unreachable"

    async def running() -> bool:
        return (await query.hosted_apps()).docker_state == "running"

    await async_until(running)
    await query.close()


@in_virtual_time
async def test_nothing_is_asked_after_the_end(tmp_path: Path) -> None:
    engine = FrozenEngine()
    query = query_of(tmp_path, engine)
    await query.hosted_apps()

    await query.close()

    assert [
        task.get_name() for task in asyncio.all_tasks() if "does not answer" in task.get_name()
    ] == []


async def test_what_was_stopped_through_the_agent_is_reported_from_what_is_down(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as running:

        async def hosted() -> list[tuple[str, bool, bool]]:
            found = (await running.hosted.hosted_apps()).apps
            return [(each.name, each.running, each.stopped) for each in found]

        for name in ("down", "stopped", "well"):
            await running.create(NewApp(name=name, image=IMAGE), ASKER)
        await running.stop("stopped", ASKER)
        containers = {each.name: each for each in engine.state.containers.values()}
        containers["down"].state = "exited"
        assert await hosted() == [
            ("down", False, False),
            ("stopped", False, True),
            ("well", True, False),
        ]

        # Somebody has started it through the engine.
        containers["stopped"].state = "running"
        assert ("stopped", True, False) in await hosted()
