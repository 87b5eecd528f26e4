import asyncio

import structlog
from structlog.testing import capture_logs

from runtime.periodic import PeriodicTask


async def test_what_fails_is_done_again_after_the_interval_and_only_defects_are_logged() -> None:
    outcomes = iter([KeyError("unforeseen"), OSError("as expected"), None])
    slept: list[float] = []
    done = asyncio.Event()

    async def action() -> None:
        if (error := next(outcomes)) is not None:
            raise error
        done.set()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if done.is_set():
            await asyncio.Event().wait()

    with capture_logs() as lines:
        log = structlog.get_logger()
        async with PeriodicTask(
            interval=7, action=action, log=log, sleep=sleep, ignored=(OSError,)
        ):
            await asyncio.wait_for(done.wait(), 10)

    assert [(line["event"], type(line["exc_info"])) for line in lines] == [("defect", KeyError)]
    assert slept[:2] == [7, 7]
