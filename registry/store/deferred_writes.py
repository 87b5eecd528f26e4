"""Writes that a store gets later, for many nodes at once."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from registry.errors import StoreUnavailable
from registry.store.protocol import DoneCallback, HeardNode, NodeStore, as_shared

MAX_DELETED_AT_ONCE = 200
# Of a million nodes, none is in the processor's cache: this many take the loop 2 ms of CPU time,
# and 4 to 5 ms where as many ages are repeated with them.
MAX_TOUCHED_AT_ONCE = 5000


class KnownNode(HeardNode, Protocol):
    """A node in memory."""

    is_touched: bool
    """Whether it is still to be written that it was heard of. Others only read it."""


class DeferredWrites:
    """Nodes whose last heartbeat or expiry is not written to the store yet.

    While a change of a node is on its way to the store, what was heard of it before is held back:
    written after the change, it would undo the change's own time and address. `done` is called
    with the outcome of each write.
    """

    def __init__(
        self,
        store: NodeStore,
        *,
        done: DoneCallback,
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._shared = as_shared(store)
        self._done = done
        self._monotonic = monotonic
        self._last_flush = monotonic()
        # In their order. One that is marked as touched no more is skipped.
        self._touched: deque[KnownNode] = deque()
        self._held: set[str] = set()
        # Those that went since the write that is on its way has begun; None while there is none.
        self._discarded: set[KnownNode] | None = None
        self._expired: dict[str, DoneCallback] = {}

    def touch(self, node: KnownNode) -> None:
        """Record that a node was heard of, and nothing else of it changed.

        What is written is what the node has then.
        """
        if not node.is_touched:
            node.is_touched = True
            self._touched.append(node)

    def hold(self, hostname: str) -> None:
        """Hold back that a node was heard of, until `release`."""
        self._held.add(hostname)

    def release(self, hostname: str) -> None:
        """Write from now on that a node was heard of, also if that was held back."""
        self._held.discard(hostname)

    @property
    def touched(self) -> int:
        """Of how many nodes it is still to be written that they were heard of, at most."""
        return len(self._touched)

    def discard_touch(self, node: KnownNode) -> None:
        """Record that a node is gone, or that another registry has changed it since."""
        node.is_touched = False
        if self._discarded is not None:
            self._discarded.add(node)

    def expire(self, hostname: str, done: DoneCallback | None = None) -> None:
        """Record that a node is to go from the store; `done` gets the outcome, too."""
        self._expired[hostname] = partial(self._end_expiry, done) if done else self._done

    def discard_expiry(self, hostname: str) -> bool:
        """Record that a node stays in the store; return whether it was to go, and had not yet."""
        return self._expired.pop(hostname, None) is not None

    async def flush(self, *, max_interval: float, retry: bool) -> None:
        """Write which nodes were heard of since the last call.

        If there are none, write all the same with `retry`, or `max_interval` seconds after the
        last write.
        """
        while self._touched and not self._touched[0].is_touched:
            self._touched.popleft()
        now = self._monotonic()
        if not (self._touched or retry or now - self._last_flush >= max_interval):
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
            deletions = [self._delete(hostname, done) for hostname, done in expired]
            await asyncio.wait(deletions)
            for deletion in deletions:
                deletion.exception()

    def _delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        if self._shared is None:
            return self._store.delete(hostname, done)
        return self._shared.delete(hostname, done, expired=True)

    def _end_expiry(self, done: DoneCallback, error: Exception | None) -> None:
        self._done(error)
        done(error)

    async def _touch_some(self) -> bool:
        """Write that some nodes were heard of; return whether the store accepted it."""
        nodes = self._take_some()
        self._discarded = discarded = set[KnownNode]()
        try:
            await self._store.touch(nodes, self._done)
        except StoreUnavailable:
            for node in nodes:
                if node not in discarded:
                    self.touch(node)
            return False
        finally:
            self._discarded = None
        return True

    def _take_some(self) -> list[KnownNode]:
        """Take the nodes that were heard of first; what is held back stays."""
        touched = self._touched
        nodes: list[KnownNode] = []
        held: list[KnownNode] = []
        for _ in range(min(len(touched), MAX_TOUCHED_AT_ONCE)):
            node = touched.popleft()
            if not node.is_touched:
                continue
            if self._held and node.hostname in self._held:
                held.append(node)
                continue
            node.is_touched = False
            nodes.append(node)
        touched += held
        return nodes
