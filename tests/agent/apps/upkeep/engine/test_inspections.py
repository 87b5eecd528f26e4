"""Which containers are inspected when, since the engine's list may be wrong."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.apps.upkeep.inspector import MOST_IN_A_ROUND, ROUND_SECONDS, Inspector
from agent.engine.errors import EngineTimeout
from agent.engine.models import Container, ContainerEvent, InspectedContainer
from agent.model import App
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.machine.clocks import ManualClock


class Inspections(FakeEngine):
    """An engine whose list keeps the states of before; it counts what is inspected."""

    def __init__(self, apps: int) -> None:
        super().__init__()
        self.counts = Counter[str]()
        self.hangs = False
        for number in range(apps):
            container = a_container(f"c{number}")
            self.state.containers[container.id] = container

    async def inspect(self, container_id: str) -> InspectedContainer:
        self.counts[container_id] += 1
        if self.hangs:
            raise EngineTimeout("late")
        return await super().inspect(container_id)

    async def listed(self) -> Mapping[str, Container]:
        return {each.id: each for each in await self.containers()}


def a_container(container_id: str) -> FakeContainer:
    return FakeContainer(
        id=container_id,
        name=f"app-{container_id}",
        image="app:1",
        labels={"rollcall.app": f"app-{container_id}"},
        env={},
        ports=[],
        volumes={},
        cpu=100,
        memory=64,
        image_id="i1",
        state="running",
    )


def event(action: str, container_id: str) -> ContainerEvent:
    return ContainerEvent(action=action, container_id=container_id, app="", time=0)


class Scene:
    """An inspector of some apps, after the inspections at the agent's start."""

    def __init__(self, folder: Path, apps: int) -> None:
        self.engine = Inspections(apps)
        self.clock = ManualClock(1000.0)
        self.found = 0
        self._context = context_of(self.engine, folder)

    async def begin(self) -> None:
        repository = self._context.repository
        apps = [an_app(container_id) for container_id in self.engine.state.containers]
        repository.load(replace(await repository.store.open(), apps=apps))
        await repository.store.close()
        self.inspector = Inspector(self._context, monotonic=lambda: self.clock.now)
        self.inspector.listeners.append(self._count)
        await self.look()

    def _count(self) -> None:
        self.found += 1

    async def look(self) -> None:
        await self.inspector.observe(await self.engine.listed())

    async def inspected_within(self, seconds: float) -> Counter[str]:
        """Return what is inspected in a time in which it looks whenever that is due."""
        self.engine.counts.clear()
        end = self.clock.now + seconds
        while (wait := self.inspector.seconds_to_next(ROUND_SECONDS)) + self.clock.now <= end:
            self.clock.now += wait
            await self.look()
        self.clock.now = end
        return self.engine.counts


def an_app(container_id: str) -> App:
    return App(
        name=f"app-{container_id}",
        image="app:1",
        ssh_port=1,
        http_port=2,
        cpu=100,
        memory=64,
        created_at="2026-01-31T12:00:00Z",
        container_id=container_id,
    )


@pytest.mark.parametrize("apps", [1, 30, 500])
async def test_all_are_inspected_at_the_start_and_each_within_ten_minutes(
    tmp_path: Path, apps: int
) -> None:
    scene = Scene(tmp_path, apps)
    await scene.begin()
    assert set(scene.engine.counts) == set(scene.engine.state.containers)

    for _ in range(3):
        found = await scene.inspected_within(600)

        assert len(found) == apps


async def test_no_more_than_fifty_that_tell_nothing_are_inspected_a_minute(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 700)
    await scene.begin()

    for _ in range(3):
        found = await scene.inspected_within(ROUND_SECONDS)

        assert found.total() == MOST_IN_A_ROUND == 50


async def test_what_died_is_inspected_at_once_and_all_are_after_a_break_of_the_events(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, 3)
    await scene.begin()
    await scene.inspected_within(ROUND_SECONDS / 2)

    scene.inspector.happened(event("die", "c1"))
    assert scene.inspector.seconds_to_next(ROUND_SECONDS) == 0
    assert await scene.inspected_within(1) == {"c1": 1}

    scene.engine.state.containers["c2"].state = "restarting"  # so that there is a pause
    scene.inspector.happened(event("die", "c2"))
    assert (await scene.inspected_within(4))["c2"] >= 3
    scene.inspector.engine_gone()
    scene.engine.counts.clear()
    await scene.look()
    assert scene.engine.counts == {"c0": 1, "c1": 1, "c2": 1}


async def test_a_container_that_the_engine_restarts_is_inspected_until_it_is_up_or_down(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, 1)
    await scene.begin()
    scene.engine.state.containers["c0"].state = "restarting"
    scene.inspector.happened(event("die", "c0"))

    assert (await scene.inspected_within(10))["c0"] >= 4
    scene.engine.state.containers["c0"].state = "exited"
    await scene.inspected_within(20)

    assert not await scene.inspected_within(ROUND_SECONDS / 3)


async def test_an_engine_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    await scene.begin()
    scene.engine.hangs = True
    scene.inspector.happened(event("die", "c0"))
    assert (await scene.inspected_within(10))["c0"] >= 3

    scene.engine.hangs = False
    await scene.inspected_within(20)

    assert not await scene.inspected_within(ROUND_SECONDS / 3)
