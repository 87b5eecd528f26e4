"""An agent that ends, or loses its engine, at any step of any operation leaves no half states."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.containers.network import NETWORK
from agent.engine.errors import EngineUnavailable
from agent.model import AppChanges, NewApp
from tests.support.agent.consistency import (
    BACKGROUND,
    DEFAULT_NETWORK,
    NEW,
    Action,
    Expected,
    check,
    run_to_its_end,
    until_idle,
)
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    DATA_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    PROBE_STEPS,
    FakeEngine,
)
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.agent.tars import packed
from tests.support.run.release import some_of

pytestmark = pytest.mark.slow


async def created(apps: AskedApps) -> None:
    await apps.create(NEW, ASKER)


async def stopped(apps: AskedApps) -> None:
    await apps.create(NEW, ASKER)
    await apps.set_password("web", "a good password", ASKER)
    await apps.stop("web", ASKER)


async def with_data(apps: AskedApps) -> None:
    await apps.create(NewApp(name="web", image=DATA_IMAGE), ASKER)


async def data_kept(apps: AskedApps) -> None:
    await with_data(apps)
    await apps.delete("web", ASKER, keep_data=True)


async def nothing(_apps: AskedApps) -> None:
    """Begin with no app."""


async def stopped_with_data(apps: AskedApps) -> None:
    await with_data(apps)
    await apps.set_password("web", "a good password", ASKER)
    await apps.stop("web", ASKER)


async def updated(apps: AskedApps) -> None:
    await apps.create(NEW, ASKER)
    await apps.set_password("web", "a good password", ASKER)
    await apps.update("web", AppChanges(image=OTHER_IMAGE, env={"A": "1"}), ASKER)


async def limited(apps: AskedApps) -> None:
    await apps.create(NEW, ASKER)
    await apps.update("web", AppChanges(cpu=70), ASKER)


async def without_data(apps: AskedApps) -> None:
    await apps.create(NewApp(name="web", image=IMAGE, data=("/a", "/b")), ASKER)
    await apps.update("web", AppChanges(data=("/a",)), ASKER)


async def broken_before(apps: AskedApps) -> None:
    await apps.create(NEW, ASKER)
    await apps.stop("web", ASKER)
    await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
    await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
    await apps.start("web", ASKER)


async def sent(tar: bytes) -> AsyncIterator[bytes]:
    yield tar


async def read_while_paused(apps: AskedApps) -> None:
    async with apps.export("web", ASKER, pause=True) as chunks:
        async for _ in chunks:
            pass


OPERATIONS: dict[str, tuple[Action, Action]] = {
    "create": (nothing, lambda apps: apps.create(NEW, ASKER)),
    "create in the background": (nothing, lambda apps: apps.create(NEW, BACKGROUND)),
    "create what does not start": (
        nothing,
        lambda apps: apps.create(NewApp(name="web", image=BROKEN_IMAGE), ASKER),
    ),
    "create in the network of isolated apps": (nothing, lambda apps: apps.create(NEW, ASKER)),
    "move into the network of isolated apps": (
        created,
        lambda apps: apps.rebuild("web", ASKER),
    ),
    "broken image, in the network of isolated apps": (
        created,
        lambda apps: apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER),
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
    "rollback": (updated, lambda apps: apps.rollback("web", None, ASKER)),
    "rollback of limits": (limited, lambda apps: apps.rollback("web", 1, ASKER)),
    "rollback in the background, to more data": (
        without_data,
        lambda apps: apps.rollback("web", 1, BACKGROUND),
    ),
    "rollback to what does not start": (
        broken_before,
        lambda apps: apps.rollback("web", 2, ASKER),
    ),
    "start": (stopped, lambda apps: apps.start("web", ASKER)),
    "restart": (created, lambda apps: apps.restart("web", ASKER)),
    "restart of what is stopped": (stopped, lambda apps: apps.restart("web", ASKER)),
    "stop": (created, lambda apps: apps.stop("web", ASKER)),
    "delete": (created, lambda apps: apps.delete("web", ASKER)),
    "restore": (
        stopped_with_data,
        lambda apps: apps.restore("web", sent(packed({"data/x": b""})), ASKER),
    ),
    "restore what is no tar": (
        stopped_with_data,
        lambda apps: apps.restore("web", sent(bytes(700)), ASKER),
    ),
    "export, paused": (with_data, read_while_paused),
    "password": (created, lambda apps: apps.set_password("web", "another password", ASKER)),
}
ISOLATED = {
    "create in the network of isolated apps",
    "move into the network of isolated apps",
    "broken image, in the network of isolated apps",
}
REMOVE_VOLUMES = {"delete", "delete with volumes"}
# One of each kind, with what may come between: data, the network, and a container that fails.
OF_EACH_KIND = some_of(
    OPERATIONS,
    *("create", "create what does not start, with data kept from before"),
    *("move into the network of isolated apps", "data", "limits", "rebuild"),
    *("rollback in the background, to more data", "rollback to what does not start", "start"),
    *("restart", "stop", "delete with volumes", "restore", "export, paused", "password"),
    reason="further operations of the same kinds",
)
# Of the volumes before, only those remain that the record names, whatever the outcome.
REPLACE_VOLUMES = {"restore"}


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


class Beginning:
    """What there is before an operation: made once, copied for each of its steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "beginning"
        self._engine = FakeEngine()

    async def make(self, before: Action) -> None:
        async with running_apps(self._folder, self._engine, LogCapture(), defaults=AT_ONCE) as apps:
            await before(apps)
            await until_idle(apps)

    def expected(self, operation: str) -> Expected:
        """Return what must remain, whatever the outcome of the operation."""
        state = self._engine.state
        return Expected(
            volumes=() if operation in REPLACE_VOLUMES else state.volumes,
            volumes_go=operation in REMOVE_VOLUMES,
            networks={each.id: each.network for each in state.containers.values()},
            network=NETWORK if operation in ISOLATED else DEFAULT_NETWORK,
        )

    def copy(self, folder: Path) -> FakeEngine:
        """Copy the database into a folder; return an engine with the same content."""
        shutil.copytree(self._folder, folder)
        return FakeEngine(deepcopy(self._engine.state))


async def step_count(operation: str, beginning: Beginning, folder: Path) -> int:
    """Return how many steps an operation has, if nothing gets in its way."""
    engine, steps = beginning.copy(folder), Steps(0, asyncio.Event().wait)
    async with again(folder, engine, operation) as apps:
        engine.at_step = steps
        await run_to_its_end(OPERATIONS[operation][1], apps)
        await check(apps, engine, beginning.expected(operation))
    return steps.count


def again(
    folder: Path, engine: FakeEngine, operation: str, drain_seconds: float = 20
) -> AbstractAsyncContextManager[AskedApps]:
    """Run apps over a database that an agent left, with the settings of an operation."""
    defaults = replace(AT_ONCE, isolated=operation in ISOLATED)
    return running_apps(
        folder, engine, LogCapture(), adopt=True, defaults=defaults, drain_seconds=drain_seconds
    )


@pytest.mark.parametrize("operation", OF_EACH_KIND)
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

        async with again(folder, engine, operation, drain_seconds=0) as apps:
            engine.at_step = Steps(number, stop_here)
            request = asyncio.ensure_future(run(apps))
            await reached.wait()
            request.cancel()
            await asyncio.wait([request])

        async with again(left, after, operation) as apps:
            assert not [each for each in after.state.containers.values() if "DATA" in each.name]
            await check(apps, after, beginning.expected(operation))

    steps = await step_count(operation, beginning, tmp_path / "whole")
    await asyncio.gather(*(kill_at(number + 1) for number in range(steps)))


@pytest.mark.parametrize("operation", OF_EACH_KIND)
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
        async with again(folder, engine, operation) as apps:
            engine.at_step = Steps(number, fail)
            await run_to_its_end(run, apps)
            await check(apps, engine, beginning.expected(operation))

    steps = await step_count(operation, beginning, tmp_path / "whole")
    await asyncio.gather(*(lose_engine_at(number + 1) for number in range(steps)))


RESTART = ("before stop", "after stop", "before start", "after start")


@pytest.mark.parametrize(
    ("at", "rest"),
    [
        ("before stop", PROBE_STEPS + RESTART),
        ("after stop", RESTART[2:]),
        ("before start", RESTART[2:]),
    ],
)
async def test_a_restart_that_was_interrupted_stops_the_container_unless_it_has_done_so(
    tmp_path: Path, at: str, rest: tuple[str, ...]
) -> None:
    engine, reached, steps = FakeEngine(), asyncio.Event(), list[str]()

    async def hang(step: str) -> None:
        if step == at:
            reached.set()
            await asyncio.Event().wait()

    async def note(step: str) -> None:
        steps.append(step)

    async with running_apps(
        tmp_path, engine, LogCapture(), defaults=AT_ONCE, drain_seconds=0
    ) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step = hang
        request = asyncio.ensure_future(apps.restart("web", ASKER))
        await reached.wait()
        request.cancel()
        await asyncio.wait([request])

    engine.at_step = note
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await until_idle(apps)
        await check(apps, engine)

    assert tuple(steps) == rest
