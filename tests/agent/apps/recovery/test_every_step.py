"""An agent that ends, or loses its engine, at any step of any operation leaves no half states."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps import AppChanges, Apps, NewApp
from agent.apps.errors import AppError
from agent.engine.protocol import EngineUnavailable
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    DATA_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    FakeEngine,
)
from tests.support.agent.in_process import DEFAULTS, async_until
from tests.support.agent.running_apps import ASKER, running_apps

pytestmark = pytest.mark.slow

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
NEW = NewApp(name="web", image=IMAGE)
BACKGROUND = replace(ASKER, respond_async=True)
Action = Callable[[Apps], Awaitable[object]]


async def created(apps: Apps) -> None:
    await apps.create(NEW, ASKER)


async def stopped(apps: Apps) -> None:
    await apps.create(NEW, ASKER)
    await apps.set_password("web", "a good password", ASKER)
    await apps.stop("web", ASKER)


async def with_data(apps: Apps) -> None:
    await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)


async def data_kept(apps: Apps) -> None:
    await with_data(apps)
    await apps.delete("web", ASKER, keep_data=True)


async def nothing(_apps: Apps) -> None:
    """Begin with no app."""


OPERATIONS: dict[str, tuple[Action, Action]] = {
    "create": (nothing, lambda apps: apps.create(NEW, ASKER)),
    "create in the background": (nothing, lambda apps: apps.create(NEW, BACKGROUND)),
    "create what does not start": (
        nothing,
        lambda apps: apps.create(NewApp(name="web", image=BROKEN_IMAGE), ASKER),
    ),
    "create with volumes of the image": (nothing, with_data),
    "create with data kept from before": (data_kept, with_data),
    "create what does not start, with data kept from before": (
        data_kept,
        lambda apps: apps.create(NewApp(name="web", image=BROKEN_IMAGE), BACKGROUND),
    ),
    "data": (with_data, lambda apps: apps.update("web", AppChanges(data=("/a", "/b")), ASKER)),
    "an image without volumes": (
        with_data,
        lambda apps: apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER),
    ),
    "broken image, with volumes": (
        with_data,
        lambda apps: apps.update("web", AppChanges(image=BROKEN_IMAGE, data=("/a",)), ASKER),
    ),
    "delete with volumes": (with_data, lambda apps: apps.delete("web", ASKER)),
    "delete, keeping volumes": (
        with_data,
        lambda apps: apps.delete("web", ASKER, keep_data=True),
    ),
    "limits": (created, lambda apps: apps.update("web", AppChanges(cpu=70), ASKER)),
    "image": (stopped, lambda apps: apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)),
    "broken image": (
        created,
        lambda apps: apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER),
    ),
    "rebuild": (created, lambda apps: apps.rebuild("web", ASKER)),
    "start": (stopped, lambda apps: apps.start("web", ASKER)),
    "stop": (created, lambda apps: apps.stop("web", ASKER)),
    "delete": (created, lambda apps: apps.delete("web", ASKER)),
    "password": (created, lambda apps: apps.set_password("web", "another password", ASKER)),
}
REMOVE_VOLUMES = {"delete", "delete with volumes"}


class Steps:
    """Counts the steps of an operation, and calls ``at`` once, at the step of that number."""

    def __init__(self, number: int, at: Callable[[], Awaitable[object]]) -> None:
        self._number = number
        self._at = at
        self.count = 0

    async def __call__(self, _step: str) -> None:
        self.count += 1
        if self.count == self._number:
            await self._at()


async def until_idle(apps: Apps) -> None:
    async def idle() -> bool:
        return all(record.progress is None for record in await apps.all())

    await async_until(idle)


async def check(
    apps: Apps, engine: FakeEngine, before: Collection[str] = (), *, volumes_go: bool = False
) -> None:
    """Assert that record, container and volumes agree, and that no volume is lost or left.

    ``before`` are the volumes before the operation, which go with it if there is no app any more.
    """
    await until_idle(apps)
    records, containers = await apps.all(), list(engine.state.containers.values())
    volumes = set(engine.state.volumes)
    named = {name for record in records for name in record.volumes.values()}
    stay: set[str] = set() if volumes_go and not records else set(before)
    assert volumes == stay | named
    made = [record for record in records if record.state != "failed"]
    for record, container in zip(made, containers, strict=True):
        assert container.volumes
        assert container.volumes.items() <= record.volumes.items()
        assert (record.container_id, record.name) == (container.id, container.name)
        assert record.state == ("running" if record.desired == "running" else container.state)
        assert (record.image, record.cpu) == (container.image, container.cpu)
        assert sorted(container.ports) == sorted((record.ssh_port, record.http_port))
        has_password = bool(container.shadow)
        assert has_password or record.password != "set"


class Beginning:
    """What there is before an operation: made once, copied for each of its steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "beginning"
        self._engine = FakeEngine()

    async def make(self, before: Action) -> None:
        async with running_apps(self._folder, self._engine, LogCapture(), defaults=AT_ONCE) as apps:
            await before(apps)
            await until_idle(apps)

    @property
    def volumes(self) -> set[str]:
        """The names of the volumes."""
        return set(self._engine.state.volumes)

    def copy(self, folder: Path) -> FakeEngine:
        """Copy the database into a folder; return an engine with the same content."""
        shutil.copytree(self._folder, folder)
        return FakeEngine(deepcopy(self._engine.state))


async def step_count(operation: str, beginning: Beginning, folder: Path) -> int:
    """Return how many steps an operation has, if nothing gets in its way."""
    engine, steps = beginning.copy(folder), Steps(0, asyncio.Event().wait)
    async with again(folder, engine) as apps:
        engine.at_step = steps
        await run_to_its_end(OPERATIONS[operation][1], apps)
        await check(apps, engine, beginning.volumes, volumes_go=operation in REMOVE_VOLUMES)
    return steps.count


def again(
    folder: Path, engine: FakeEngine, drain_seconds: float = 20
) -> AbstractAsyncContextManager[Apps]:
    """Run apps over a database that an agent left."""
    return running_apps(
        folder, engine, LogCapture(), adopt=True, defaults=AT_ONCE, drain_seconds=drain_seconds
    )


async def run_to_its_end(run: Action, apps: Apps) -> None:
    try:
        await run(apps)
    except (AppError, EngineUnavailable):
        return
    finally:
        await until_idle(apps)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_agent_killed_at_any_step_recovers_at_its_next_start(
    tmp_path: Path, operation: str
) -> None:
    before, run = OPERATIONS[operation]
    beginning = Beginning(tmp_path)
    await beginning.make(before)

    async def kill_at(number: int) -> None:
        folder, left = tmp_path / f"{number}", tmp_path / f"{number}-left"
        engine, reached, after = beginning.copy(folder), asyncio.Event(), FakeEngine()

        async def stop_here() -> None:
            shutil.copytree(folder, left)
            after.state = deepcopy(engine.state)
            reached.set()
            await asyncio.Event().wait()

        async with again(folder, engine, drain_seconds=0) as apps:
            engine.at_step = Steps(number, stop_here)
            request = asyncio.ensure_future(run(apps))
            await reached.wait()
            request.cancel()
            await asyncio.wait([request])

        async with again(left, after) as apps:
            await check(apps, after, beginning.volumes, volumes_go=operation in REMOVE_VOLUMES)

    steps = await step_count(operation, beginning, tmp_path / "whole")
    await asyncio.gather(*(kill_at(number + 1) for number in range(steps)))


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_engine_that_does_not_answer_at_any_step_is_asked_again(
    tmp_path: Path, operation: str
) -> None:
    before, run = OPERATIONS[operation]
    beginning = Beginning(tmp_path)
    await beginning.make(before)

    async def lose_engine_at(number: int) -> None:
        async def fail() -> None:
            raise EngineUnavailable("the engine does not answer")

        folder = tmp_path / f"{number}"
        engine = beginning.copy(folder)
        async with again(folder, engine) as apps:
            engine.at_step = Steps(number, fail)
            await run_to_its_end(run, apps)
            await check(apps, engine, beginning.volumes, volumes_go=operation in REMOVE_VOLUMES)

    steps = await step_count(operation, beginning, tmp_path / "whole")
    await asyncio.gather(*(lose_engine_at(number + 1) for number in range(steps)))
