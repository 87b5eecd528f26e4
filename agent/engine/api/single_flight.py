"""One call for all callers that ask the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SingleFlight:
    """Shares calls among callers who ask the same, so that each has two under way at most.

    An answer is never older than the question: a caller joins only a call that is not yet sent. One
    that is under way may have been answered before a change that the caller has made since. So
    callers that arrive meanwhile share the next call, which is sent as soon as all callers of the
    one before have its answer.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Call] = {}
        self._sent: dict[str, _Call] = {}

    async def share(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``ask``, or that of the same call of another caller.

        It is cancelled once no caller waits for it. It has its time limit in itself, since it may
        be sent long after a caller came.
        """
        call = self._waiting.get(key)
        if call is None:
            call = self._waiting[key] = _Call(asyncio.create_task(self._send(key, ask)))
        call.callers += 1
        try:
            answer: T = await asyncio.shield(call.task)
            await call.wait_for_turn()
        finally:
            call.callers -= 1
            if not call.callers:
                self._end(key, call)
        return answer

    async def _send(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        while (before := self._sent.get(key)) is not None:
            await before.ended.wait()
        self._sent[key] = self._waiting.pop(key)
        return await ask()

    def _end(self, key: str, call: "_Call") -> None:
        call.task.cancel()  # nothing happens if it is done
        for calls in (self._waiting, self._sent):
            if calls.get(key) is call:
                del calls[key]
        call.ended.set()


class _Call:
    """A call and how many callers wait for it, or for their turn to take its answer."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.callers = 0
        self.ended = asyncio.Event()
        self._turn = asyncio.Lock()

    async def wait_for_turn(self) -> None:
        """Wait until it is this caller's turn: one in each iteration of the event loop.

        If hundreds of callers continued in one iteration, everything else would wait until all of
        them have made their responses.
        """
        if self.callers > 1:
            async with self._turn:
                await asyncio.sleep(0)
