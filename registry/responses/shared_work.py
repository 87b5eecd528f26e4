"""Callers that ask for the same value at the same time share one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedWork(Generic[K, V]):
    """Makes values by key. Callers that ask while a value is being made share the next one.

    So no value is older than the request for it, and at most one value for each key is being made
    at any time.
    """

    def __init__(self) -> None:
        self._next: dict[K, asyncio.Task[V]] = {}
        self._running: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        """Return a value that `make` began to make after this call."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._make(key, make))
            task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(task)

    async def _make(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        if key in self._running:
            await asyncio.wait([self._running[key]])
        task = self._running[key] = self._next.pop(key)
        try:
            return await make()
        finally:
            if self._running.get(key) is task:
                del self._running[key]


def _retrieve_exception(task: asyncio.Task[V]) -> None:
    """Mark an exception as retrieved: all callers may be gone."""
    if not task.cancelled():
        task.exception()
