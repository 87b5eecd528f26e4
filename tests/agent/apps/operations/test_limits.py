"""Limits of a container that others have changed, over an engine in memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import MemoryInUse
from agent.engine.errors import EngineRejected
from agent.engine.models import MIB, Sample
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer, sampled
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

pytestmark = pytest.mark.slow
RECORDED, RAISED, REJECTED, USED = 64, 256, 512, 128


class Engine(FakeEngine):
    """An engine whose apps use USED MiB, and that sets a limit of REJECTED MiB and fails then."""

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        del priority
        found = sampled(self._find(container_id))
        return found and replace(found, memory_bytes=USED * MIB)

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        await super().limit(container_id, cpu=cpu, memory=memory)
        if memory == REJECTED:
            raise EngineRejected("no such cgroup")


def container_of(engine: FakeEngine) -> FakeContainer:
    (container,) = engine.state.containers.values()
    return container


@pytest.mark.parametrize("limit", [RAISED, 0])  # 0: somebody has removed it
async def test_an_update_to_the_recorded_memory_does_not_kill_an_app_that_uses_more(
    tmp_path: Path, limit: int
) -> None:
    engine = Engine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, memory=RECORDED), ASKER)
        container_of(engine).memory = limit

        with pytest.raises(MemoryInUse, match="stop it first"):
            await apps.update("web", AppChanges(memory=RECORDED), ASKER)

        assert container_of(engine).memory == limit
        container_of(engine).state = "exited"
        await apps.update("web", AppChanges(memory=RECORDED), ASKER)
        assert container_of(engine).memory == RECORDED


async def test_limits_that_are_rejected_leave_the_container_those_that_it_had(
    tmp_path: Path,
) -> None:
    engine = Engine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NewApp(name="web", image=IMAGE, memory=RECORDED), ASKER)
        container_of(engine).memory, container_of(engine).cpu = RAISED, 99

        with pytest.raises(MemoryInUse, match="no such cgroup"):
            await apps.update("web", AppChanges(memory=REJECTED), ASKER)

        assert (container_of(engine).memory, container_of(engine).cpu) == (RAISED, 99)
        assert (await apps.queries.one("web")).memory == created.memory
