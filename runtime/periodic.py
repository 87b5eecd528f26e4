"""Work that is repeated at intervals."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from structlog.typing import FilteringBoundLogger


class PeriodicTask:
    """While open, calls `action`, waits for `interval` seconds, and so on.

    An exception of the action is logged as a defect, unless it is one of those ``ignored``; the
    action is called again after the interval.
    """

    def __init__(
        self,
        *,
        interval: float,
        action: Callable[[], Awaitable[None]],
        log: FilteringBoundLogger,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        ignored: Collection[type[Exception]] = (),
    ) -> None:
        self._interval = interval
        self._action = action
        self._log = log
        self._sleep = sleep
        self._ignored = ignored

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            try:
                with suppress(*self._ignored):
                    await self._action()
            except Exception as error:
                self._log.error("defect", exc_info=error)
            await self._sleep(self._interval)
