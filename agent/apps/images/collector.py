"""Collecting the images that no app needs any more, of those that the agent pulled."""

import asyncio
from collections.abc import Awaitable

from agent.apps.context import AgentContext
from agent.apps.images.images import AppImages
from agent.engine.errors import AnswerTooLong, EngineError
from agent.state.database import StoreError

LOOK_SECONDS = 60.0


class ImageCollector:
    """Removes images that nobody needs: after each operation, and once a minute.

    A removal that failed is tried again then.
    """

    def __init__(self, context: AgentContext, images: AppImages) -> None:
        self._log = context.log
        self._images = images
        self._operation_ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to look."""
        work = (self._look_after_operations(), self._look_each_minute())
        self._tasks = [asyncio.create_task(each, name="collect images") for each in work]

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def operation_ended(self) -> None:
        """Look again soon."""
        self._operation_ended.set()

    async def _look_after_operations(self) -> None:
        while True:
            await self._operation_ended.wait()
            self._operation_ended.clear()
            # A busy engine soon forgets what it pulled.
            await self._logged(self._images.pulled.finish_broken_off())
            await self._logged(self._images.unneeded.remove())

    async def _look_each_minute(self) -> None:
        while True:
            await self._logged(self._images.pulled.finish_broken_off())
            await self._logged(self._images.unneeded.look())
            await asyncio.sleep(LOOK_SECONDS)

    async def _logged(self, work: Awaitable[None]) -> None:
        try:
            await work
        except AnswerTooLong as error:
            self._log.warning("images not listed", reason=str(error))
        except (EngineError, StoreError) as error:
            self._log.debug("images not collected", reason=str(error))
        except Exception as error:  # it goes on with the next look
            self._log.error("collecting images failed", exc_info=error)
