"""The end of the agent does not wait for an operation that does not end when it is interrupted."""

import asyncio
from pathlib import Path
from time import time

import structlog
from structlog.testing import LogCapture

from agent.apps.operations.job import Job
from agent.apps.operations.runner import OperationRunner
from agent.apps.repository.repository import AppRepository
from agent.state.store import Store
from tests.support.agent.running_apps import ASKER


async def test_an_interrupted_operation_that_waits_for_the_engine_is_left_behind(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "agent.db")
    repository = AppRepository(store, clock=time)
    repository.load(await store.open())
    log = structlog.wrap_logger(None, processors=[LogCapture()])
    runner = OperationRunner(repository=repository, recover={}, clock=time, log=log)
    begun, engine_answers = asyncio.Event(), asyncio.Event()

    async def work(_: Job) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await engine_answers.wait()

    await runner.start("web", "export", ASKER, work)
    await begun.wait()
    job = runner.current("web")

    await runner.close(0, interrupt_seconds=0)

    assert job is not None
    assert not job.done.is_set()
    engine_answers.set()
    await job.done.wait()
    await repository.close()
