"""The limits of a listener's connections, and the set of those that are open."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from httpd.metrics import RequestMetrics

# Turns of the loop that aiohttp takes from a request's bytes to its handler, and one to spare.
TURNS_TO_BEGIN = 3


@dataclass(frozen=True)
class Timeouts:
    """Time limits of a connection, in seconds.

    ``idle``: from one request to the next; longer than a heartbeat, so that agents keep their
    connection. ``header``: from a request's first byte to the end of its headers. ``stall``: while
    the client takes nothing of a response. ``linger``: for the rest of a body that was refused.
    ``handshake``: for TLS. ``handshake_budget``: how long the handshakes of all clients together
    may keep other clients waiting at a stretch.
    """

    idle: float = 75.0
    header: float = 10.0
    stall: float = 30.0
    linger: float = 2.0
    handshake: float = 5.0
    handshake_budget: float = 0.005


class Connection(Protocol):
    """An open connection."""

    @property
    def is_busy(self) -> bool:
        """Whether a request of it is being answered."""

    def finish(self) -> None:
        """Take no request but those whose bytes have arrived."""

    def close_if_idle(self) -> None:
        """Close it, unless a request is being answered."""

    def abort(self) -> None:
        """Close it at once; what is not sent yet is lost."""


@dataclass
class ConnectionLimiter:
    """What the connections of one listener have in common.

    Attributes:
        max_connections: how many there may be.
        stopping: no request is to follow those that are being answered.

    """

    max_connections: int
    metrics: RequestMetrics
    timeouts: Timeouts
    stopping: bool = False
    _open: set[Connection] = field(default_factory=set)
    _busy: set[Connection] = field(default_factory=set)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def connected(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def acquire(self, connection: Connection) -> bool:
        """Register a connection; return False when there are too many."""
        if len(self._open) >= self.max_connections:
            self.metrics.connections_refused.inc()
            return False
        self._open.add(connection)
        self.metrics.connections.set(len(self._open))
        return True

    def release(self, connection: Connection) -> None:
        """Unregister a connection."""
        self._open.discard(connection)
        self.metrics.connections.set(len(self._open))
        self.answered(connection)

    def answered(self, connection: Connection) -> None:
        """Note that a connection may have become idle."""
        if self.stopping and not connection.is_busy:
            self._busy.discard(connection)
            if not self._busy:
                self._idle.set()

    async def stop(self) -> None:
        """Close the connections on which no request is being answered."""
        self.stopping = True
        for connection in list(self._open):
            connection.finish()
        for _ in range(TURNS_TO_BEGIN):
            await asyncio.sleep(0)
        for connection in list(self._open):
            connection.close_if_idle()

    async def drain(self, seconds: float) -> None:
        """Wait, for so long at most, until the requests that have begun are answered."""
        self._busy = {connection for connection in self._open if connection.is_busy}
        if self._busy:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()

    def abort(self) -> None:
        """Close the connections that are left at once."""
        for connection in list(self._open):
            connection.abort()
