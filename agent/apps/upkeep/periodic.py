"""Work that is repeated as long as the apps are open."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.engine.errors import EngineError

PeriodicWork = Callable[[], Awaitable[None]]


class PeriodicTasks:
    """Repeats each piece of work at an interval in seconds.

    An engine that cannot be asked is ignored: the watcher logs it. Another exception is
    logged as a defect.
    """

    def __init__(
        self, seconds_by_work: Mapping[PeriodicWork, float], log: FilteringBoundLogger
    ) -> None:
        self._seconds_by_work = seconds_by_work
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._repeat(work, seconds), name=work.__qualname__)
            for work, seconds in self._seconds_by_work.items()
        ]

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, work: PeriodicWork, seconds: float) -> None:
        while True:
            try:
                with suppress(EngineError):
                    await work()
            except Exception as error:
                self._log.error("defect", exc_info=error)
            await asyncio.sleep(seconds)
