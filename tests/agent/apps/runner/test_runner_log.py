"""What is logged of an operation that fails: once, and at the level that it is worth."""

from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppError, AppExists
from agent.apps.host import Host
from agent.apps.requests import Stop
from agent.apps.runner.job import Job
from agent.apps.runner.runner import OperationRunner, Operations
from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.journal import EntryHeader, StopEntry
from agent.model import App
from agent.state.database import StoreError
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.running_apps import ASKER

APP = App(name="web", image="i", ssh_port=1, http_port=2, cpu=1, memory=6, created_at="")
HEADER = EntryHeader(id="1", operation="stop", app="web", by="ops", since=0)


class FailingOperation:
    """An operation that fails, before or after it is in the journal, and whenever recovered."""

    def __init__(self, error: Exception, *, commits: bool) -> None:
        self._error = error
        self._commits = commits

    async def run(self, _host: Host, job: Job, _request: Stop) -> None:
        if self._commits:
            await job.commit(StopEntry(header=job.header, target=APP))
        raise self._error

    async def recover(self, _host: Host, _job: Job, _entry: StopEntry) -> None:
        raise self._error


async def level(
    folder: Path, error: Exception, *, commits: bool = True, repeated: bool = False
) -> str:
    """Return the level at which the failure of an operation, or of its recovery, is logged."""
    log, operation = LogCapture(), FailingOperation(error, commits=commits)
    async with opened_host(FakeEngine(), folder, log=log) as host:
        operations = Operations(act={Stop: operation.run}, recover={StopEntry: operation.recover})
        runner = OperationRunner(host, operations)
        entry = StopEntry(header=HEADER, target=APP)
        failing = (
            runner.recover(entry, repeated=True) if repeated else runner.run(Stop("web"), ASKER)
        )
        with pytest.raises(type(error)):
            await failing
    return str(log.entries[-1]["log_level"])


@pytest.mark.parametrize(
    "error", [AppError("no"), EngineRejected("no"), EngineUnavailable("no"), StoreError("disk")]
)
async def test_a_change_that_fails_after_it_was_begun_is_a_warning_the_first_time(
    tmp_path: Path, error: Exception
) -> None:
    assert await level(tmp_path, error) == "warning"
    assert await level(tmp_path, error, repeated=True) == "debug"


async def test_a_clients_mistake_is_left_to_the_log_of_requests(tmp_path: Path) -> None:
    assert await level(tmp_path, AppExists("no"), commits=False) == "debug"


async def test_what_nobody_thought_of_is_an_error_with_its_trace(tmp_path: Path) -> None:
    assert await level(tmp_path, KeyError("no")) == "error"
