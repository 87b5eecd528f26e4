"""The limits of a listener's connections, and the set of those that are open."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from httpd.metrics import RequestMetrics

# Iterations of the event loop from a request's bytes to its handler in aiohttp, plus one.
TURNS_TO_BEGIN = 3


@dataclass(frozen=True)
class Timeouts:
    """Time limits of a connection, in seconds.

    Attributes:
        idle: until the next request begins; longer than the interval of heartbeats, so that agents
            keep their connections.
        header: until the head of a request is complete.
        stall: without the client reading anything of a response.
        linger: for the rest of a body that was refused.
        handshake: for a TLS handshake.
        handshake_budget: for the steps of all handshakes in one iteration of the event loop.

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
        """Whether a request is being answered, or a response being sent."""

    def finish(self) -> None:
        """Accept no request other than those whose bytes have arrived."""

    def close_if_idle(self) -> None:
        """Close it, unless a request is being answered."""


@dataclass
class ConnectionLimiter:
    """Limits the connections of one listener, and keeps those that are open.

    Attributes:
        max_connections: the most that may be open.
        metrics: counts connections, open and refused.
        timeouts: the time limits of each connection.
        stopping: whether the server is stopping: requests in progress are the last.

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
        """The number of open connections."""
        return len(self._open)

    def acquire(self, connection: Connection) -> bool:
        """Count a connection in; return False if there are too many."""
        if len(self._open) >= self.max_connections:
            self.metrics.connections_refused.inc()
            return False
        self._open.add(connection)
        self.metrics.connections.set(len(self._open))
        return True

    def release(self, connection: Connection) -> None:
        """Count a connection out."""
        self._open.discard(connection)
        self.metrics.connections.set(len(self._open))
        self.answered(connection)

    def answered(self, connection: Connection) -> None:
        """Record that a connection may have become idle."""
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
        """Wait until the requests that have begun are answered, at most this many seconds."""
        self._busy = {connection for connection in self._open if connection.is_busy}
        if self._busy:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
