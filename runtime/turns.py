"""Places that keys share, and for which the next one waits. It imports nothing of HTTP."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from contextvars import ContextVar
from weakref import WeakValueDictionary

# The names of the keys for which the present task works. They are several if requests share its
# result, and none if no request asked for it.
WORKING_FOR: ContextVar[AbstractSet[str]] = ContextVar("WORKING_FOR", default=frozenset())


def share(places: int) -> int:
    """Return how many of so many places one key may have: four fifths, at least one."""
    return max(1, places * 4 // 5)


class Turns:
    """So many places, of which one key has its share at most; the next one waits.

    If there is one place, keys that wait have it in turn, however many wait with the same key.
    """

    def __init__(self, places: int) -> None:
        self._share = share(places)
        self._free = asyncio.Semaphore(places)
        self._free_by_key: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: Hashable, *, most: int | None = None) -> AsyncIterator[None]:
        """Take a place for a key while the context is open, once there is one.

        ``most`` is the share of this key, by default that of any.
        """
        free_for_key = self._free_by_key.setdefault(key, asyncio.Semaphore(most or self._share))
        async with free_for_key, self._free:
            yield

    def must_wait(self, key: str) -> bool:
        """Return whether the next one of a key has to wait."""
        free_for_key = self._free_by_key.get(key)
        return self._free.locked() or (free_for_key is not None and free_for_key.locked())
