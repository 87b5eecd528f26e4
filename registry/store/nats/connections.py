"""One connection after the other, with pauses between them."""

import asyncio
from collections.abc import Awaitable, Callable

from registry.errors import StoreOpenError
from registry.store.nats.connection.link import Connector, Link, NoConnection

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 3.0


class Connections:
    """Makes a new connection whenever one has ended, after pauses that double."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()

    async def work(
        self,
        over: Callable[[Link], Awaitable[None]],
        *,
        has_ended: Callable[[Exception], bool],
        tick: Callable[[], None],
    ) -> None:
        """Work over each connection, until `has_ended` returns True for the error that ended one.

        `tick` is called often in the pauses.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self._loop.time()
            if has_ended(await self._work_once(over)):
                return
            if self._loop.time() - began > MAX_PAUSE_SECONDS * 2:
                pause = FIRST_PAUSE_SECONDS
            await self._pause(pause, tick)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _work_once(self, over: Callable[[Link], Awaitable[None]]) -> Exception:
        """Work over one connection until it ends; return the error, logged if it is a defect."""
        try:
            async with self._connector.connected() as link:
                await over(link)
        except (NoConnection, StoreOpenError) as error:
            return error
        except Exception as defect:
            context = {"message": "defect of the store", "exception": defect}
            self._loop.call_exception_handler(context)
            return defect
        return NoConnection("the connection ended")

    async def _pause(self, seconds: float, tick: Callable[[], None]) -> None:
        over = self._loop.time() + seconds
        while self._loop.time() < over:
            await asyncio.sleep(min(seconds, FIRST_PAUSE_SECONDS))
            tick()
