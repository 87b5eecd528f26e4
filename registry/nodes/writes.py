"""Changes of nodes on their way to the store, and whether it accepts them."""

import asyncio
from collections.abc import Callable
from functools import partial

from registry.errors import NotLoaded, StoreFull, StoreUnavailable, StoreUnreachable
from registry.nodes.directory.directory import Entry
from registry.store.deferred_writes import DeferredWrites
from registry.store.protocol import DoneCallback, Guard, NodeStore, as_shared


class NodeWrites:
    """What is written to the store: changes of nodes at once, when they were heard of later.

    `unavailable_error` is why heartbeats are not accepted at present, None if they are.
    """

    def __init__(self, *, store: NodeStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._shared = as_shared(store)
        self.unavailable_error: Exception | None = NotLoaded(
            "the nodes are still being read; ask again"
        )
        # What was given to the store and is not durable yet: the node, or None for a deletion.
        self.pending: dict[str, Entry | None] = {}
        self.deferred = DeferredWrites(store, done=self._update_availability, monotonic=monotonic)

    def require_loaded(self) -> None:
        """Raise NotLoaded until the nodes are loaded."""
        if isinstance(self.unavailable_error, NotLoaded):
            raise NotLoaded(*self.unavailable_error.args)

    def require_readable(self) -> None:
        """Raise if reads are not possible; StoreFull and StoreUnreachable allow them.

        Raises StoreUnavailable, NotLoaded.
        """
        error = self.unavailable_error
        if error is not None and not isinstance(error, StoreFull | StoreUnreachable):
            raise error

    @property
    def is_up_to_date(self) -> bool:
        """Whether all changes are in memory that were durable a second ago."""
        return self._shared is None or self._shared.is_up_to_date

    async def catch_up(self) -> None:
        """Wait until all changes are in memory that were durable before the call.

        Raises StoreUnavailable.
        """
        if self._shared is None:
            return
        try:
            await self._shared.catch_up()
        except StoreUnavailable as error:
            self._update_availability(error)
            raise
        self._update_availability(None)

    def put(self, entry: Entry, done: DoneCallback, guard: Guard) -> asyncio.Future[None]:
        """Store a node, as SharedStore says; the guard is asked only where others may change it."""
        self.pending[entry.hostname] = entry
        self.deferred.hold(entry.hostname)
        self.deferred.discard_expiry(entry.hostname)
        ended = partial(self._on_put, entry, done)
        if self._shared is None:
            return self._store.put(entry.row(), ended)
        return self._shared.put(entry.row(), ended, guard)

    def delete(self, hostname: str, done: DoneCallback, guard: Guard) -> asyncio.Future[None]:
        """Delete a node, as SharedStore says."""
        self.pending[hostname] = None
        self.deferred.hold(hostname)
        ended = partial(self._on_deleted, hostname, done)
        if self._shared is None:
            return self._store.delete(hostname, ended)
        return self._shared.delete(hostname, ended, guard)

    async def flush(self, *, max_interval: float) -> None:
        """Make durable which nodes were heard of since the last call.

        If there are none, write all the same `max_interval` seconds after the last write. While the
        store is unavailable, each call tries it again.
        """
        if not isinstance(self.unavailable_error, NotLoaded):
            await self.deferred.flush(
                max_interval=max_interval, retry=self.unavailable_error is not None
            )

    def _on_put(self, entry: Entry, done: DoneCallback, error: Exception | None) -> None:
        if self.pending.get(entry.hostname) is entry:
            self._end(entry.hostname)
        self._update_availability(error)
        done(error)

    def _on_deleted(self, hostname: str, done: DoneCallback, error: Exception | None) -> None:
        if hostname in self.pending and self.pending[hostname] is None:
            self._end(hostname)
        self._update_availability(error)
        done(error)

    def _end(self, hostname: str) -> None:
        del self.pending[hostname]
        self.deferred.release(hostname)

    def _update_availability(self, error: Exception | None) -> None:
        if error is None:
            self.unavailable_error = None
        elif isinstance(error, StoreUnavailable):
            self.unavailable_error = error
