"""One answer for all callers who ask the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from runtime.turns import WORKING_FOR

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Call(Generic[V]):
    """A call, how many callers wait for it, and the names of their keys."""

    task: asyncio.Task[V]

    def __init__(self) -> None:
        self.callers = 0
        self.keys = set[str]()
        self.turn = asyncio.Lock()


class SingleFlight(Generic[K, V]):
    """Shares calls by key: of each key, one call runs, and at most one is next.

    No answer is older than its question: a caller joins only a call that has not begun. One that
    runs may have been answered before a change that the caller has made since.
    """

    def __init__(self) -> None:
        self._next: dict[K, _Call[V]] = {}
        self._running: dict[K, _Call[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the answer of ``ask``, or that of another caller's, which began after this call.

        It works for all who wait for it, and is cancelled when nobody does. A time limit belongs
        into ``ask``, which may begin long after its caller came.
        """
        call = self._next.get(key)
        if call is None:
            call = self._next[key] = _Call()
            call.task = asyncio.create_task(self._run(key, call, ask))
            call.task.add_done_callback(_retrieve_exception)
        for awaited in (call, self._running.get(key)):
            if awaited is not None:
                awaited.keys.update(WORKING_FOR.get())
        call.callers += 1
        try:
            answer = await asyncio.shield(call.task)
            # If hundreds of callers continued in one round of the event loop, everything else would
            # wait until all of them have made their responses.
            if call.callers > 1:
                async with call.turn:
                    await asyncio.sleep(0)
            return answer
        finally:
            call.callers -= 1
            if not call.callers:
                self._end(key, call)

    async def _run(self, key: K, call: _Call[V], ask: Callable[[], Awaitable[V]]) -> V:
        WORKING_FOR.set(call.keys)
        if key in self._running:
            await asyncio.wait([self._running[key].task])
        self._running[key] = self._next.pop(key)
        try:
            return await ask()
        finally:
            if self._running.get(key) is call:
                del self._running[key]

    def _end(self, key: K, call: _Call[V]) -> None:
        call.task.cancel()  # nothing happens if it is done
        if self._next.get(key) is call:
            del self._next[key]


class JoinedCalls(Generic[K, V]):
    """Shares calls that cannot be cancelled: whoever asks while one runs waits for the same one.

    So an answer may be older than its question, as that of a look-up of a name may.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Future[V]] = {}

    async def get(self, key: K, begin: Callable[[], asyncio.Future[V]]) -> V:
        """Return the answer of the call that runs, or of one that this begins."""
        call = self._running.get(key)
        if call is None:
            call = self._running[key] = begin()
            call.add_done_callback(partial(self._end, key))
        await asyncio.wait([call])
        return call.result()

    def _end(self, key: K, call: asyncio.Future[V]) -> None:
        del self._running[key]
        _retrieve_exception(call)


def _retrieve_exception(call: asyncio.Future[V]) -> None:
    """Mark an exception as retrieved: all callers may be gone."""
    if not call.cancelled():
        call.exception()
