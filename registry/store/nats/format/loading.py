"""The nodes of the bucket, collected at the start."""

import asyncio
from collections.abc import Callable

from registry.store.nats.connection.delivery import Message
from registry.store.nats.format.messages import (
    AGES,
    BEGUN,
    COMPLETE,
    HEARD,
    decode_ages,
    decode_heard,
    is_deletion,
)
from registry.store.protocol import Row

# On a slow machine, a cluster that begins with the registry takes some twenty seconds.
NO_PROGRESS_SECONDS = 30.0


async def is_ready(ready: asyncio.Future[None], progress: Callable[[], object]) -> bool:
    """Wait for the end of the start, as long as `progress` returns something else now and then."""
    seen: object = None
    while not ready.done() and progress() != seen:
        seen = progress()
        await asyncio.wait([ready], timeout=NO_PROGRESS_SECONDS)
    return ready.done()


class LoadedNodes:
    """The nodes so far, and the latest uptime of all messages.

    `sequence_of` returns the last sequence of a host's node so far.
    """

    def __init__(self, sequence_of: Callable[[str], int]) -> None:
        self._sequence_of = sequence_of
        self.uptime = 0.0
        self._rows: dict[str, Row] = {}
        self._heard: dict[str, float] = {}

    def stored(self, row: Row, uptime: float) -> None:
        """Keep a node, last heard of at an uptime."""
        self._rows[row.hostname] = row
        self._heard[row.hostname] = uptime

    def deleted(self, hostname: str) -> None:
        """Forget a host."""
        self._rows.pop(hostname, None)
        self._heard.pop(hostname, None)

    def heard(self, message: Message) -> None:
        """Take over what was heard of nodes that are known."""
        kind = message.key.partition(".")[0]
        if is_deletion(message.headers) or message.key in {BEGUN, COMPLETE}:
            return
        if kind == HEARD:
            batch = decode_heard(message.data)
            for hostname, last_update, address in batch.unchanged(self._sequence_of):
                self._note(hostname, batch.uptime, last_update, address)
        elif kind == AGES:
            for hostname, uptime, last_update, address in decode_ages(message.data).ages:
                # A small message that came before this one may be newer than these ages.
                if uptime > self._heard.get(hostname, uptime):
                    self._note(hostname, uptime, last_update, address)

    def _note(self, hostname: str, uptime: float, last_update: int, address: str) -> None:
        row = self._rows.get(hostname)
        if row is not None:
            self._rows[hostname] = row._replace(last_update=last_update, address=address)
            self._heard[hostname] = uptime

    def rows(self) -> list[Row]:
        """Return all nodes, sorted, with their ages."""
        now = self.uptime
        return [
            row._replace(age=max(0.0, now - self._heard[hostname]))
            for hostname, row in sorted(self._rows.items())
        ]
