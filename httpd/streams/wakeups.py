"""Wakes the tasks that wait for something new, some at a time."""

import asyncio
from contextlib import suppress
from typing import Self

WOKEN_AT_ONCE = 16
# A task is woken at most once in this time, which grows with the number of waiting tasks.
MIN_INTERVAL_SECONDS = 0.02
INTERVAL_SECONDS_PER_WAITER = 0.0005


class Wakeups:
    """Wakes all tasks that wait when there is something new. To wake one takes some 0.1 ms.

    So tasks are woken in groups, between which the loop serves others, and once for several news in
    short succession. It works while it is open.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._news = asyncio.Event()
        self.is_closed = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def close(self) -> None:
        """Wake all tasks that wait; from now on none waits."""
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def notify(self) -> None:
        """Record that there is something new."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something new, at most so long; return whether there is."""
        if self.is_closed:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting.pop(future, None)

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            waiting = list(self._waiting)
            for start in range(0, len(waiting), WOKEN_AT_ONCE):
                for future in waiting[start : start + WOKEN_AT_ONCE]:
                    if not future.done():
                        future.set_result(None)
                await asyncio.sleep(0)
            pause = INTERVAL_SECONDS_PER_WAITER * len(waiting)
            await asyncio.sleep(max(MIN_INTERVAL_SECONDS, pause))
