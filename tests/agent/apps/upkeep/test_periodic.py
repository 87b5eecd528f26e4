import asyncio

import structlog
from structlog.testing import capture_logs

from agent.apps.upkeep.periodic import PeriodicTasks
from agent.engine.errors import EngineUnavailable


async def test_work_that_fails_is_done_again_and_only_defects_are_logged() -> None:
    outcomes = iter([KeyError("unforeseen"), EngineUnavailable("the engine is gone")])
    done = asyncio.Event()

    async def work() -> None:
        if (error := next(outcomes, None)) is not None:
            raise error
        done.set()

    with capture_logs() as lines:
        tasks = PeriodicTasks({work: 0}, structlog.get_logger())
        tasks.open()
        await asyncio.wait_for(done.wait(), 10)
        await tasks.close()

    assert [(line["event"], type(line["exc_info"])) for line in lines] == [("defect", KeyError)]
