"""Stores in memory that several registries share, each of which learns of changes after a while."""

import asyncio
import random
from dataclasses import dataclass

from registry.store.protocol import DoneCallback, Guard, Row, StorePosition
from tests.support.registry.stores.memory_store import MemoryStore

MAX_DELAY_SECONDS = 0.02
ORDER = "5f0c1d7e"


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a host by one store; `row` is None if it was deleted."""

    by: "SharedStore"
    hostname: str
    row: Row | None
    done: DoneCallback
    future: asyncio.Future[None]


class SharedLog:
    """The changes of all stores, in their order. Each store takes them after random times."""

    def __init__(self, seed: int) -> None:
        self.changes: list[_Change] = []
        self._random = random.Random(seed)
        self._stores: list[SharedStore] = []

    def store(self) -> "SharedStore":
        """Return one more store, before any change."""
        store = SharedStore(self)
        self._stores.append(store)
        return store

    def add(self, change: _Change) -> None:
        """Add a change."""
        self.changes.append(change)
        for store in self._stores:
            delay = self._random.uniform(0, MAX_DELAY_SECONDS)
            asyncio.get_running_loop().call_later(delay, store.take, len(self.changes))


class SharedStore(MemoryStore):
    """The store of one registry. The others do not learn what it has seen."""

    def __init__(self, log: SharedLog) -> None:
        super().__init__()
        self._log = log
        self._taken = 0
        self.position = StorePosition(ORDER, 0)

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        del guard
        return self._add(row.hostname, row, done)

    def delete(
        self,
        hostname: str,
        done: DoneCallback,
        guard: Guard | None = None,
        *,
        expired: bool = False,
    ) -> asyncio.Future[None]:
        del guard, expired
        return self._add(hostname, None, done)

    def take(self, count: int) -> None:
        """Take the changes up to this one; those before it first."""
        while self._taken < count:
            change = self._log.changes[self._taken]
            self._taken += 1
            self.position = StorePosition(ORDER, self._taken)
            self._apply_change(change)

    def _apply_change(self, change: _Change) -> None:
        if change.by is self:
            change.done(None)
            change.future.set_result(None)
        elif change.row is not None:
            self.shared.stored(change.row)
        else:
            self.shared.deleted(change.hostname, expired=False)

    def _add(self, hostname: str, row: Row | None, done: DoneCallback) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log.add(_Change(self, hostname, row, done, future))
        return future
