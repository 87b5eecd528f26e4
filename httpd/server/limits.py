"""The limits of a listener's connections: how many there are, and what they hold."""

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from httpd.metrics import RequestMetrics
from httpd.places import Places

# Iterations of the loop from a request's bytes to aiohttp's call of its handler, and one more.
TURNS_TO_BEGIN = 3
# A client that has connected has so long to send a request before others may take its place.
GRACE_SECONDS = 1.0
# This many clients, at most half of all, may use that time at once.
MIN_NEWCOMERS = 32
NEWCOMERS_SHARE = 10
MAX_UNFINISHED_BYTES = 64 * 1024 * 1024
# For files, other sockets, the engine, the log, and connections that are being rejected.
RESERVED_DESCRIPTORS = 256


@dataclass(frozen=True)
class Timeouts:
    """Time limits of a connection, in seconds.

    ``idle``: from one request to the next; longer than a heartbeat, so that agents keep their
    connection. ``header``: from a request's first byte to the end of its headers; for the first
    request, from connecting; without a valid key, from the answer before. ``stall``: while the
    client takes nothing of a response. ``linger``: for the rest of a request that was rejected.
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
        """Whether a request of it is being answered, or an answer being sent."""

    @property
    def has_shown_key(self) -> bool:
        """Whether a request on it had a valid key."""

    @property
    def may_be_closed(self) -> bool:
        """Whether it may be closed to make room for another."""

    def finish(self) -> None:
        """Take no request but those whose bytes have arrived."""

    def close_if_idle(self) -> None:
        """Close it, unless a request is being answered."""

    def close_now(self, reason: str) -> None:
        """Close it without waiting for the client; the reason is counted."""


class ConnectionLimiter:
    """The open connections of one listener, at most ``max_connections``.

    When there are that many, a new one takes the place of one that may be closed: of one that has
    shown no valid key, or else of the one that has been idle for longest. Clients that have just
    connected are spared, unless they are many, since their first request may be on its way.

    One key keeps its share of them busy at most, with requests that wait or answers that are read
    slowly, so that the holders of other keys get in.

    Attributes:
        stopping: no request is to follow those that are being answered.

    """

    def __init__(
        self,
        *,
        max_connections: int,
        metrics: RequestMetrics,
        timeouts: Timeouts,
        time: Callable[[], float],
    ) -> None:
        self.max_connections = max_connections
        self.metrics = metrics
        self.timeouts = timeouts
        self.stopping = False
        self._time = time
        self._max_newcomers = min(
            max(MIN_NEWCOMERS, max_connections // NEWCOMERS_SHARE), max_connections // 2
        )
        self._open: set[Connection] = set()
        # Those that may be closed, in the order of their last activity; strangers with its time.
        self._strangers: OrderedDict[Connection, float] = OrderedDict()
        self._known: OrderedDict[Connection, None] = OrderedDict()
        self._places = Places(max_connections, "requests are being answered")
        self._occupied: dict[Connection, str] = {}
        self._busy: set[Connection] = set()
        self._idle = asyncio.Event()

    @property
    def connected(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def acquire(self, connection: Connection) -> bool:
        """Register a connection; return False when there are too many, all of them busy."""
        if len(self._open) >= self.max_connections and not self._make_room():
            self.metrics.connections_rejected.inc()
            return False
        self._open.add(connection)
        self._strangers[connection] = self._time()
        self.metrics.connections.set(len(self._open))
        return True

    def occupy(self, connection: Connection, key: str) -> None:
        """Count a connection as busy for a key, by its name, until it may be closed; NoPlace."""
        self._vacate(connection)
        if connection in self._open:
            self._places.take(key)
            self._occupied[connection] = key

    def _vacate(self, connection: Connection) -> None:
        key = self._occupied.pop(connection, None)
        if key is not None:
            self._places.leave(key)

    def release(self, connection: Connection) -> None:
        """Unregister a connection; once is enough."""
        self._open.discard(connection)
        self._vacate(connection)
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)
        self.metrics.connections.set(len(self._open))
        self._end(connection)

    def used(self, connection: Connection) -> None:
        """Record that a request was answered."""
        if connection in self._known:
            self._known.move_to_end(connection)
        else:
            self.changed(connection)

    def changed(self, connection: Connection) -> None:
        """Record that a connection may have become busy or idle, or has shown a valid key."""
        if connection not in self._open:
            return
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)
        if not connection.may_be_closed:
            return
        self._vacate(connection)
        if connection.has_shown_key:
            self._known[connection] = None
        else:
            self._strangers[connection] = self._time()
        self._end(connection)

    def _end(self, connection: Connection) -> None:
        if self.stopping and not connection.is_busy:
            self._busy.discard(connection)
            if not self._busy:
                self._idle.set()

    def _make_room(self) -> bool:
        """Close the connection that the class describes; return False if all are busy."""
        if self._strangers and not (self._known and self._are_newcomers()):
            stranger, _ = self._strangers.popitem(last=False)
            self._close(stranger)
        elif self._known:
            known, _ = self._known.popitem(last=False)
            self._close(known)
        else:
            return False
        return True

    def _are_newcomers(self) -> bool:
        """Return whether those without a key are few, and have just connected."""
        oldest = next(iter(self._strangers.values()))
        is_few = len(self._strangers) <= self._max_newcomers
        return is_few and self._time() - oldest < GRACE_SECONDS

    def _close(self, connection: Connection) -> None:
        self._open.discard(connection)  # its place is free before its end is noticed
        connection.close_now("room")

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
            connection.close_now("stop")


class UnfinishedRequests:
    """The bytes that clients have sent of requests that are not complete, or wait for their turn.

    Beyond ``max_bytes``, the connection whose request began first is closed, until the rest fits.
    """

    def __init__(self, max_bytes: int = MAX_UNFINISHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._total = 0
        self._held: OrderedDict[Connection, int] = OrderedDict()  # the oldest first

    def hold(self, connection: Connection, size: int) -> None:
        """Record how many bytes a connection holds now. 0 ends what it began."""
        before = self._held.pop(connection, 0) if not size else self._held.get(connection, 0)
        self._total += size - before
        if size:
            self._held[connection] = size
        while self._total > self._max_bytes:
            oldest, released = self._held.popitem(last=False)
            self._total -= released
            oldest.close_now("memory")


def raise_open_file_limit(wanted: int, log: FilteringBoundLogger) -> int:
    """Raise the limit of open files for ``wanted`` connections; return how many are possible.

    A process without a free descriptor cannot even reject a connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_DESCRIPTORS
    enough = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
        soft = enough
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    possible = max(1, soft - RESERVED_DESCRIPTORS)
    log.warning(
        "fewer connections than configured",
        max_connections=wanted,
        possible=possible,
        remedy=f"raise the limit of open files (LimitNOFILE=, ulimit -n) to {needed}",
    )
    return possible
