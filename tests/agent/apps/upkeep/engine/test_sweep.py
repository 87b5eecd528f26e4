"""Containers that are left as they are, for any reason: reported once, and no other waits."""

from functools import partial
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import StartFailed
from agent.apps.labels import HELPER_LABEL, HELPS
from agent.engine.errors import EngineRejected
from agent.engine.models import Container, InspectedContainer
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

REASON = "device or resource busy"


class ObservedEngine(FakeEngine):
    """An engine that counts how often the agent has looked at all containers."""

    looks = 0

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        # A look ends with the containers by which data is read.
        self.looks += label == f"{HELPER_LABEL}={HELPS}"
        return await super().containers(label=label, seconds=seconds)

    async def look_again(self) -> None:
        """Wait until the agent has begun and ended another look."""
        for _ in range(2):
            before = self.looks

            async def looked(before: int = before) -> bool:
                return self.looks > before

            self.go_away()
            await async_until(looked)


class RejectingEngine(FakeEngine):
    """An engine that refuses to rename a container, or to tell of one."""

    fixed = ""
    unread = ""
    rejected = 0

    def _reject(self) -> None:
        self.rejected += 1
        raise EngineRejected(REASON)

    async def rename(self, container_id: str, name: str) -> None:
        if container_id == self.fixed:
            self._reject()
        await super().rename(container_id, name)

    async def inspect(self, container_id: str) -> InspectedContainer:
        if container_id == self.unread:
            self._reject()
        return await super().inspect(container_id)

    async def reject_again(self) -> None:
        """Wait until it has rejected this twice more: the agent has handled the first of these."""
        for _ in range(2):
            before = self.rejected

            async def rejected(before: int = before) -> bool:
                return self.rejected > before

            self.go_away()  # so that the agent looks at all containers again
            await async_until(rejected)


async def create(apps: AskedApps, engine: FakeEngine, *names: str) -> list[FakeContainer]:
    for name in names:
        await apps.create(NewApp(name=name, image=IMAGE), ASKER)
    return [*engine.state.containers.values()]


async def is_reported(log: LogCapture, event: str) -> bool:
    return any(each["event"] == event for each in log.entries)


def reported(log: LogCapture, event: str) -> list[tuple[str, str]]:
    return [(each["app"], each["reason"]) for each in log.entries if each["event"] == event]


@pytest.mark.slow
async def test_a_rename_that_the_engine_rejects_is_reported_once_and_delays_no_other_app(
    tmp_path: Path,
) -> None:
    engine, log = RejectingEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        first, second, third = await create(apps, engine, "first", "second", "third")
    engine.fixed = first.id
    for each in (first, second):
        each.name += ".NEXT-0123abcd"
    third.state = "exited"  # as if it had been killed

    async def others_are_as_they_should_be() -> bool:
        return (second.name, third.state) == ("second", "running")

    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE):
        await async_until(others_are_as_they_should_be)
        await engine.reject_again()

    assert reported(log, "container not renamed") == [("first", REASON)]
    assert first.name.startswith("first.NEXT-")


@pytest.mark.slow
async def test_another_reason_why_a_container_keeps_its_name_is_reported_too(
    tmp_path: Path,
) -> None:
    engine, log = RejectingEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        first, second = await create(apps, engine, "first", "second")
    engine.fixed = first.id
    first.name += ".NEXT-0123abcd"

    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE):
        await async_until(partial(is_reported, log, "container not renamed"))
        engine.fixed, second.name = "", "first"
        engine.go_away()
        await async_until(partial(is_reported, log, "name held by another container"))


@pytest.mark.slow
async def test_a_container_of_no_app_that_the_engine_shows_nothing_of_is_reported_once(
    tmp_path: Path,
) -> None:
    engine, log = RejectingEngine(), LogCapture()
    async with running_apps(tmp_path / "lost", engine, log, defaults=AT_ONCE) as apps:
        first, _ = await create(apps, engine, "first", "second")
    engine.unread = first.id

    async with running_apps(tmp_path / "empty", engine, log, defaults=AT_ONCE) as apps:
        await async_until(partial(is_reported, log, "app read from its container"))
        await engine.reject_again()
        assert [each.name for each in await apps.queries.all()] == ["second"]

    assert reported(log, "container not read") == [("first", REASON)]


async def left_by_an_undone_update(apps: AskedApps, engine: FakeEngine) -> FakeContainer:
    """Return a container that an update has made and removed."""
    made = dict[str, FakeContainer]()

    async def note(step: str) -> None:
        if step == "after create":
            made.update(engine.state.containers)

    engine.at_step = note
    with pytest.raises(StartFailed):
        await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
    (left,) = (made[each] for each in made.keys() - engine.state.containers.keys())
    return left


@pytest.mark.slow
async def test_a_container_of_an_undone_change_is_reported_once_and_removed_when_it_is_down(
    tmp_path: Path,
) -> None:
    engine, log = ObservedEngine(), LogCapture()
    event = "container of an undone operation left alone: it is up"
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        await create(apps, engine, "web")
        left = await left_by_an_undone_update(apps, engine)
    left.state = "running"
    engine.state.containers[left.id] = left

    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE):
        await async_until(partial(is_reported, log, event))
        await engine.look_again()
        assert left.id in engine.state.containers
        left.state = "exited"
        engine.go_away()  # so that the agent looks at all containers again

        async def removed() -> bool:
            return left.id not in engine.state.containers

        await async_until(removed)

    assert [each["event"] for each in log.entries].count(event) == 1
