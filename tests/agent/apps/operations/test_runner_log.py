"""What the log is told of a change that fails: once, and no more than it is worth."""

import pytest
import structlog
from structlog.testing import LogCapture

from agent.apps.errors import AppError, AppExists
from agent.apps.operations.runner import OperationRunner, Requester
from agent.engine.protocol import EngineError, EngineUnavailable
from agent.state.store import StoreError


async def level(error: Exception, *, begun: bool, repeated: bool = False) -> str:
    log = LogCapture()
    operations = OperationRunner(
        clock=lambda: 0.0,
        on_change=lambda: None,
        log=structlog.wrap_logger(None, processors=[log]),
    )
    job = await operations.take("web", "create", Requester(name="ops", repeated=repeated))

    async def work() -> None:
        if begun:
            job.committed.set()
        raise error

    with pytest.raises(type(error)):
        await operations.run(job, work())
    (told,) = log.entries
    return str(told["log_level"])


@pytest.mark.parametrize(
    "error", [AppError("no"), EngineError("no"), EngineUnavailable("no"), StoreError("disk")]
)
async def test_a_change_that_fails_after_it_was_begun_is_a_warning_the_first_time(
    error: Exception,
) -> None:
    assert await level(error, begun=True) == "warning"
    assert await level(error, begun=True, repeated=True) == "debug"


async def test_a_clients_mistake_is_left_to_the_log_of_requests() -> None:
    assert await level(AppExists("no"), begun=False) == "debug"


async def test_what_nobody_thought_of_is_an_error_with_its_trace() -> None:
    assert await level(KeyError("no"), begun=True) == "error"
