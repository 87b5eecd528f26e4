"""What is written to the store: changes of nodes at once, when they were seen for many at once."""

import asyncio
from collections import deque
from functools import partial

from registry.errors import (
    NoRoomForChange,
    NotLoaded,
    StoreFull,
    StoreUnavailable,
    StoreUnreachable,
)
from registry.nodes.context import RegistryContext
from registry.nodes.directory import KnownNode
from registry.store.protocol import DoneCallback, Guard, as_shared

MAX_DELETED_AT_ONCE = 200
# Of a million nodes, none is in the processor's cache: this many take the loop 2 ms of CPU time,
# and 4 to 5 ms where as many ages are repeated with them.
MAX_TOUCHED_AT_ONCE = 5000


class Writes:
    """Changes of nodes on their way to the store, and what is to be written later.

    While a change of a node is `pending`, its last heartbeat is not written: written after the
    change, it would undo the change's own time and address. `unavailable_error` is why heartbeats
    are not accepted at present, None if they are; the outcome of each write sets it.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._store = context.store
        self.shared = as_shared(context.store)
        self._steady = context.clocks.steady
        self._max_flush_interval = context.settings.freshness.max_flush_interval
        self.unavailable_error: Exception | None = NotLoaded(
            "the nodes are still being read; ask again"
        )
        # What was given to the store and is not durable yet: the node, or None for a deletion.
        self.pending: dict[str, KnownNode | None] = {}
        self._last_flush = self._steady()
        # In their order. One that is marked as touched no more is skipped.
        self._touched: deque[KnownNode] = deque()
        # Those that went since the write that is on its way has begun; None while there is none.
        self._discarded: set[KnownNode] | None = None
        self._expired: dict[str, DoneCallback] = {}

    def require_loaded(self) -> None:
        """Raise NotLoaded until the nodes are loaded."""
        if isinstance(self.unavailable_error, NotLoaded):
            raise NotLoaded(*self.unavailable_error.args)

    def require_readable(self) -> None:
        """Raise if reads are not possible; StoreFull and StoreUnreachable allow them.

        Raises StoreUnavailable, NotLoaded.
        """
        if self.unavailable_error is not None and not self.is_readable:
            raise self.unavailable_error

    @property
    def is_readable(self) -> bool:
        """Whether reads are possible."""
        return isinstance(self.unavailable_error, StoreFull | StoreUnreachable | None)

    @property
    def is_current(self) -> bool:
        """Whether all changes are in memory that were durable a second ago."""
        return self.shared is None or self.shared.is_current

    async def catch_up(self) -> None:
        """Wait until all changes are in memory that were durable before the call.

        Raises StoreUnavailable.
        """
        if self.shared is None:
            return
        try:
            await self.shared.catch_up()
        except StoreUnavailable as error:
            self._update_availability(error)
            raise
        self._update_availability(None)

    def put(self, entry: KnownNode, done: DoneCallback, guard: Guard) -> asyncio.Future[None]:
        """Store a node, as SharedStore says; the guard is asked only where others may change it."""
        self.pending[entry.hostname] = entry
        self._expired.pop(entry.hostname, None)
        ended = partial(self._end, entry.hostname, entry, done)
        if self.shared is None:
            return self._store.put(entry.row(), ended)
        return self.shared.put(entry.row(), ended, guard)

    def delete(self, hostname: str, done: DoneCallback, guard: Guard) -> asyncio.Future[None]:
        """Delete a node, as SharedStore says."""
        self.pending[hostname] = None
        ended = partial(self._end, hostname, None, done)
        if self.shared is None:
            return self._store.delete(hostname, ended)
        return self.shared.delete(hostname, ended, guard)

    def touch(self, node: KnownNode) -> None:
        """Record that a node was seen, and nothing else of it changed, to be written later.

        What is written is what the node has then.
        """
        if not node.is_touched:
            node.is_touched = True
            self._touched.append(node)

    def discard_touch(self, node: KnownNode) -> None:
        """Record that a node is gone, or that another registry has changed it since."""
        node.is_touched = False
        if self._discarded is not None:
            self._discarded.add(node)

    @property
    def touched(self) -> int:
        """Of how many nodes it is still to be written that they were seen, at most."""
        return len(self._touched)

    def expire(self, hostname: str, done: DoneCallback | None = None) -> None:
        """Record that a node is to go from the store; `done` gets the outcome, too."""
        ended = self._update_availability
        self._expired[hostname] = partial(self._end_expiry, done) if done else ended

    def discard_expiry(self, hostname: str) -> bool:
        """Record that a node stays in the store; return whether it was to go, and had not yet."""
        return self._expired.pop(hostname, None) is not None

    async def flush(self) -> None:
        """Make durable which nodes were seen since the last call.

        If there were none, write now and then all the same: after a crash, ages go on from the
        last write. While the store is unavailable, each call tries it again.
        """
        if isinstance(self.unavailable_error, NotLoaded):
            return
        while self._touched and not self._touched[0].is_touched:
            self._touched.popleft()
        now = self._steady()
        is_due = now - self._last_flush >= self._max_flush_interval
        is_due |= self.unavailable_error is not None
        if not (self._touched or is_due):
            return
        self._last_flush = now
        left = len(self._touched)
        while await self._touch_some() and left > MAX_TOUCHED_AT_ONCE:
            left -= MAX_TOUCHED_AT_ONCE

    async def delete_expired(self) -> None:
        """Delete expired nodes from the store, some at a time.

        If this fails, the next start reads the node again, and it expires again.
        """
        while self._expired:
            # From the end: to find the first of a million after deletions takes milliseconds.
            count = min(len(self._expired), MAX_DELETED_AT_ONCE)
            expired = [self._expired.popitem() for _ in range(count)]
            deletions = [self._delete_expired(hostname, done) for hostname, done in expired]
            await asyncio.wait(deletions)
            for deletion in deletions:
                deletion.exception()

    def _delete_expired(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        if self.shared is None:
            return self._store.delete(hostname, done)
        return self.shared.delete(hostname, done, expired=True)

    def _end_expiry(self, done: DoneCallback, error: Exception | None) -> None:
        self._update_availability(error)
        done(error)

    async def _touch_some(self) -> bool:
        """Write that some nodes were seen; return whether the store accepted it."""
        nodes = self._take_some()
        self._discarded = discarded = set[KnownNode]()
        try:
            await self._store.touch(nodes, self._update_availability)
        except StoreUnavailable:
            for node in nodes:
                if node not in discarded:
                    self.touch(node)
            return False
        finally:
            self._discarded = None
        return True

    def _take_some(self) -> list[KnownNode]:
        """Take the nodes that were seen first; those with a pending change stay."""
        touched = self._touched
        nodes: list[KnownNode] = []
        held: list[KnownNode] = []
        for _ in range(min(len(touched), MAX_TOUCHED_AT_ONCE)):
            node = touched.popleft()
            if not node.is_touched:
                continue
            if self.pending and node.hostname in self.pending:
                held.append(node)
                continue
            node.is_touched = False
            nodes.append(node)
        touched += held
        return nodes

    def _end(
        self, hostname: str, written: KnownNode | None, done: DoneCallback, error: Exception | None
    ) -> None:
        if hostname in self.pending and self.pending[hostname] is written:
            del self.pending[hostname]
        self._update_availability(error)
        done(error)

    def _update_availability(self, error: Exception | None) -> None:
        if error is None:
            self.unavailable_error = None
        elif isinstance(error, StoreUnavailable) and not isinstance(error, NoRoomForChange):
            self.unavailable_error = error
