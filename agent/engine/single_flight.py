"""One call for all who ask the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SingleFlight:
    """Shares calls among callers who ask the same, so that each has two under way at most.

    An answer is never older than the question: a caller joins only a call that was not yet sent
    when it came. One that is under way may have been answered before a change which that caller
    has made since; so whoever comes meanwhile waits for the next call, which all of them share and
    which is sent as soon as the one under way has ended.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Call] = {}
        self._sent: dict[str, asyncio.Task[Any]] = {}

    async def share(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what ``ask`` returns, or what the same question of another caller did.

        ``ask`` is to have a time limit of its own. It is cancelled once no caller waits for it.
        """
        call = self._waiting.get(key)
        if call is None:
            call = self._waiting[key] = _Call(asyncio.create_task(self._send(key, ask)))
        call.callers += 1
        try:
            answer: T = await asyncio.shield(call.task)
        finally:
            call.callers -= 1
            if not call.callers:
                self._cancel(key, call)
        return answer

    async def _send(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        while (before := self._sent.get(key)) is not None:
            await asyncio.wait({before})
        task = self._sent[key] = self._waiting.pop(key).task
        try:
            return await ask()
        finally:
            assert self._sent.pop(key) is task

    def _cancel(self, key: str, call: "_Call") -> None:
        call.task.cancel()  # nothing happens if it has ended
        if self._waiting.get(key) is call:
            del self._waiting[key]


class _Call:
    """A call and how many callers wait for it."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.callers = 0
