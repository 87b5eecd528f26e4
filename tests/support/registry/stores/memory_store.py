"""A store in memory: a SharedStore that a test can fill, hold up and let fail."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from registry.errors import StoreUnavailable
from registry.store.protocol import (
    DoneCallback,
    Guard,
    HeardNode,
    Loaded,
    Member,
    Row,
    SharedNodes,
    StoreHealth,
    StorePosition,
)


class MemoryStore:
    """Durable, as it were, in the next iteration of the loop, one operation after the other.

    While `failure` is set, every operation fails with it. `loaded` can be cleared to hold up
    `load`. `kept` is what it held when it was closed. `shared` are the nodes in memory, which a
    test changes as another registry would; `guard` is that of the last put. `denied` and
    `expected` are the digests that others get.
    """

    def __init__(
        self,
        rows: Sequence[Row] = (),
        *,
        monotonic: Callable[[], float] = lambda: 0.0,
        continues: bool = True,
    ) -> None:
        self.rows = {row.hostname: row for row in rows}
        self.continues = continues
        self.failure: Exception | None = None
        self.loaded = asyncio.Event()
        self.loaded.set()
        self._monotonic = monotonic
        self._heard = {row.hostname: monotonic() - row.age for row in rows}
        self._closed = False
        self.kept: Sequence[Row] = ()
        self.age = 0.0
        self.is_current = True
        self.catch_ups = 0
        self.missed: list[Row] = []
        self.problem = ""
        self.risk = self.unchecked = ""
        self.members: Sequence[Member] = ()
        self.memory_bytes = 0
        self.touches = 0
        self.denied = self.expected = ""
        self.position: StorePosition | None = None
        self.guard: Guard | None = None

    async def load(self) -> Loaded:
        await self.loaded.wait()
        return Loaded(await asyncio.to_thread(self._aged_rows), self.continues)

    @property
    def health(self) -> StoreHealth:
        return StoreHealth(self.age, self.problem, self.risk, self.unchecked, self.continues)

    def _aged_rows(self) -> list[Row]:
        now = self._monotonic()
        return [self.rows[name]._replace(age=now - self._heard[name]) for name in sorted(self.rows)]

    def announce(self, *, denied: str, expected: str) -> None:
        self.denied, self.expected = denied, expected

    def follow(self, nodes: SharedNodes) -> None:
        """Nobody else writes, except a test, through `shared`."""
        self.shared = nodes

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        self.guard = guard
        return self._soon(done, lambda: {row.hostname: row})

    def touch(self, nodes: Sequence[HeardNode], done: DoneCallback) -> asyncio.Future[None]:
        self.touches += 1
        heard = [(node.hostname, node.last_update) for node in nodes]
        addresses = {node.hostname: node.address for node in nodes if node.is_moved}
        return self._soon(
            done,
            lambda: {
                hostname: self.rows[hostname]._replace(
                    last_update=last_update,
                    address=addresses.get(hostname, self.rows[hostname].address),
                )
                for hostname, last_update in heard
                if hostname in self.rows
            },
        )

    def delete(
        self,
        hostname: str,
        done: DoneCallback,
        guard: Guard | None = None,
        *,
        expired: bool = False,
    ) -> asyncio.Future[None]:
        del guard, expired
        return self._soon(done, lambda: {hostname: None})

    async def catch_up(self) -> None:
        """Deliver what another registry has changed, as a test says."""
        self.catch_ups += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        while self.missed:
            self.shared.stored(self.missed.pop())

    async def confirm(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.continues = True

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.sleep(0)  # what was begun is finished in this iteration
            self.kept = self._aged_rows()

    def _soon(
        self, done: DoneCallback, changes: Callable[[], Mapping[str, Row | None]]
    ) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        loop.call_soon(self._finish, done, changes if not self._closed else None, future)
        return future

    def _finish(
        self,
        done: DoneCallback,
        changes: Callable[[], Mapping[str, Row | None]] | None,
        future: asyncio.Future[None],
    ) -> None:
        failure = self.failure
        if changes is None:
            failure = StoreUnavailable("the store is closed")
        elif failure is None:
            self._apply(changes())
        try:
            done(failure)  # what it raises goes to the loop's exception handler
        finally:
            if not future.done():
                if failure is None:
                    future.set_result(None)
                else:
                    future.set_exception(failure)

    def _apply(self, changes: Mapping[str, Row | None]) -> None:
        for hostname, row in changes.items():
            if row is None:
                self.rows.pop(hostname, None)
            else:
                self.rows[hostname] = row
                self._heard[hostname] = self._monotonic()


class MemoryPlace:
    """Opens one memory store after the other, each with what the one before held when closed."""

    def __init__(self) -> None:
        self._last = MemoryStore(continues=False)

    def __call__(self, monotonic: Callable[[], float]) -> MemoryStore:
        self._last = MemoryStore(
            self._last.kept, monotonic=monotonic, continues=self._last.continues
        )
        return self._last
