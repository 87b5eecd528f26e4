"""How long the end of the agent waits for operations."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.apps.host import Host
from agent.apps.requests import Start
from agent.apps.runner.job import Job
from agent.apps.runner.runner import OperationRunner, Operations
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.running_apps import ASKER
from tests.support.machine.clocks import in_virtual_time

Work = Callable[[Host, Job, Start], Awaitable[None]]


@asynccontextmanager
async def opened_runner(folder: Path, work: Work) -> AsyncIterator[OperationRunner]:
    """Yield a runner whose starts do this work; its repository is closed in the end."""
    async with opened_host(FakeEngine(), folder) as host:
        yield OperationRunner(host, Operations(act={Start: work}))


async def test_an_interrupted_operation_that_waits_for_the_engine_is_left_behind(
    tmp_path: Path,
) -> None:
    begun, engine_answers = asyncio.Event(), asyncio.Event()

    async def work(*_: Any) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await engine_answers.wait()

    async with opened_runner(tmp_path, work) as runner:
        await runner.start(Start("web"), ASKER)
        await begun.wait()
        job = runner.jobs.get("web")

        await runner.close(0, interrupt_seconds=0)

        assert job is not None
        assert not job.done.is_set()
        engine_answers.set()
        await job.done.wait()


@pytest.mark.parametrize(("passed", "left"), [(0, 30), (14, 16), (40, 0)])
@in_virtual_time
async def test_operations_have_their_time_from_when_the_agent_begins_to_stop(
    tmp_path: Path, passed: float, left: float
) -> None:
    begun = asyncio.Event()

    async def work(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with opened_runner(tmp_path, work) as runner:
        await runner.start(Start("web"), ASKER)
        await begun.wait()
        runner.end_pulls()
        await asyncio.sleep(passed)  # while responses end, and changes are reported
        clock = asyncio.get_running_loop()
        began = clock.time()

        await runner.close(30)

        assert clock.time() - began == pytest.approx(left)
        assert runner.jobs.get("web") is None
