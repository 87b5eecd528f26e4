"""Writes that a store gets later, for many nodes at once."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Protocol

from registry.errors import StoreUnavailable
from registry.store.protocol import DoneCallback, Heard, NodeStore

MAX_DELETED_AT_ONCE = 200
# Of a million nodes, none is in the processor's cache: this many take the loop 2 ms.
MAX_TOUCHED_AT_ONCE = 2000


class HeardNode(Protocol):
    """A node in memory, of which the store keeps when it was last heard of, and from where."""

    @property
    def hostname(self) -> str:
        """Its name."""

    @property
    def last_update(self) -> int:
        """The Unix time of its last heartbeat."""

    @property
    def address(self) -> str:
        """The address that it was sent from."""


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
        self._done = done
        self._monotonic = monotonic
        self._last_flush = monotonic()
        self._touched: dict[str, HeardNode] = {}
        self._being_written: dict[str, HeardNode] = {}
        self._held: dict[str, HeardNode | None] = {}
        self._expired: dict[str, None] = {}

    def touch(self, node: HeardNode) -> None:
        """Record that a node was heard of, and nothing else of it changed.

        What is written is what the node has then.
        """
        touched = self._held if node.hostname in self._held else self._touched
        touched[node.hostname] = node

    def is_touched(self, hostname: str) -> bool:
        """Return whether it is still to be written that a node was heard of."""
        return hostname in self._touched or self._held.get(hostname) is not None

    def hold(self, hostname: str) -> None:
        """Hold back that a node was heard of, until `release`."""
        if hostname not in self._held:
            self._held[hostname] = self._touched.pop(hostname, None)

    def release(self, hostname: str) -> None:
        """Write from now on that a node was heard of, also if that was held back."""
        node = self._held.pop(hostname, None)
        if node is not None:
            self._touched[hostname] = node

    @property
    def touched(self) -> int:
        """Of how many nodes it is still to be written that they were heard of."""
        return len(self._touched)

    def expire(self, hostname: str) -> None:
        """Record that a node has expired."""
        self._expired[hostname] = None

    def discard_touch(self, hostname: str) -> None:
        """Record that a node is gone."""
        if hostname in self._held:
            self._held[hostname] = None
        self._touched.pop(hostname, None)
        self._being_written.pop(hostname, None)

    def discard_expiry(self, hostname: str) -> None:
        """Record that a node is written anew."""
        self._expired.pop(hostname, None)

    async def flush(self, *, max_interval: float, retry: bool) -> None:
        """Write which nodes were heard of since the last call.

        If there are none, write all the same with `retry`, or `max_interval` seconds after the
        last write.
        """
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
            hostnames = [self._expired.popitem()[0] for _ in range(count)]
            deletions = [
                self._store.delete(hostname, self._done, expired=True) for hostname in hostnames
            ]
            await asyncio.wait(deletions)
            for deletion in deletions:
                deletion.exception()

    async def _touch_some(self) -> bool:
        """Write that some nodes were heard of; return whether the store accepted it."""
        touched = dict(itertools.islice(self._touched.items(), MAX_TOUCHED_AT_ONCE))
        for hostname in touched:
            del self._touched[hostname]
        heard = [Heard(name, node.last_update, node.address) for name, node in touched.items()]
        self._being_written = touched
        try:
            await self._store.touch(heard, self._done)
        except StoreUnavailable:
            for node in self._being_written.values():
                self.touch(node)
            return False
        finally:
            self._being_written = {}
        return True
