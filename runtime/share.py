"""Callers that ask for the same value at the same time share one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from runtime.turns import WORKING_FOR

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Work(NamedTuple, Generic[V]):
    """A value that is being made, or is next, and the names of the keys that wait for it."""

    task: asyncio.Task[V]
    waiting: set[str]


class SharedWork(Generic[K, V]):
    """Makes values by key. Callers that ask while a value is being made share the next one.

    So no value is older than the request for it, and at most one value for each key is being made
    at any time. Work goes on for all that wait for it: a caller does not wait for the turns of
    another one that asked before.
    """

    def __init__(self) -> None:
        self._next: dict[K, _Work[V]] = {}
        self._running: dict[K, _Work[V]] = {}

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """Return a value that `make` began to make after this call."""
        work = self._next.get(key)
        if work is None:
            waiting = set[str]()
            task = asyncio.create_task(self._make(key, make, waiting))
            task.add_done_callback(_retrieve_exception)
            work = self._next[key] = _Work(task, waiting)
        for awaited in (work, self._running.get(key)):
            if awaited is not None:
                awaited.waiting.update(WORKING_FOR.get())
        return await asyncio.shield(work.task)

    async def _make(self, key: K, make: Callable[[], Awaitable[V]], waiting: set[str]) -> V:
        WORKING_FOR.set(waiting)
        if key in self._running:
            await asyncio.wait([self._running[key].task])
        work = self._running[key] = self._next.pop(key)
        try:
            return await make()
        finally:
            if self._running.get(key) is work:
                del self._running[key]


def _retrieve_exception(task: asyncio.Task[V]) -> None:
    """Mark an exception as retrieved: all callers may be gone."""
    if not task.cancelled():
        task.exception()
