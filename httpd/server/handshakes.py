"""The TLS handshakes of a listener, scheduled in steps so that other clients are served between."""

import asyncio
from collections import OrderedDict
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from httpd.access_log import LineLimit
from httpd.server.limits import ConnectionLimiter
from httpd.server.open_files import RESERVED_DESCRIPTORS

# Descriptors for clients that are refused: over TLS, even the refusal takes a handshake.
REFUSAL_DESCRIPTORS = RESERVED_DESCRIPTORS // 2
# More than are done within their time limit; each takes 66 KiB.
MAX_HANDSHAKES = 4096


class Handshake(Protocol):
    """One client's handshake."""

    def step(self) -> None:
        """Process what the client has sent; takes a millisecond or more."""

    def abort(self) -> None:
        """Close the connection at once."""


class HandshakeScheduler:
    """Decides which handshake has its next step.

    A step costs as much as dozens of requests, so each pass of the event loop runs a few at most,
    and connected clients are answered in between. With more clients than there is time for,
    handshakes that have begun go first, then the newest. The oldest are the next to give up, and
    work on them would be lost: in order of arrival, all would give up.
    """

    def __init__(
        self,
        limiter: ConnectionLimiter,
        *,
        loop: asyncio.AbstractEventLoop,
        log: FilteringBoundLogger,
    ) -> None:
        self.timeout_seconds = limiter.timeouts.handshake
        self._limiter = limiter
        self._loop = loop
        self._in_progress: OrderedDict[Handshake, None] = OrderedDict()
        self._new: dict[Handshake, None] = {}
        self._half_done: dict[Handshake, None] = {}
        self._running = False
        self._log = log
        self._lines = LineLimit()

    def begin(self, handshake: Handshake) -> bool:
        """Register a handshake; return False when there are too many clients even to refuse one.

        If there are too many, the oldest handshake gives its place to the newest.
        """
        free = self._limiter.max_connections + REFUSAL_DESCRIPTORS - self._limiter.connected
        if len(self._in_progress) >= min(free, MAX_HANDSHAKES) and not self._make_room():
            self._limiter.metrics.connections_refused.inc()
            return False
        self._in_progress[handshake] = None
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        return True

    def _make_room(self) -> bool:
        if not self._in_progress:
            return False
        oldest = next(iter(self._in_progress))
        self.end(oldest, "failed")
        self._limiter.metrics.connections_cut_off.labels("room").inc()
        oldest.abort()
        return True

    def schedule_step(self, handshake: Handshake, *, half_done: bool) -> None:
        """Run a step of the handshake when it is its turn."""
        waiting = self._half_done if half_done else self._new
        waiting[handshake] = None
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run_pending)

    def certificate_rejected(self, address: str, reason: str) -> None:
        """Write a line about a client whose certificate is rejected, at a limited rate."""
        if self._lines.admits(self._loop.time()):
            suppressed = self._lines.take_suppressed()
            details = {"suppressed": suppressed} if suppressed else {}
            self._log.info("client certificate rejected", remote=address, reason=reason, **details)

    def end(self, handshake: Handshake, outcome: str) -> None:
        """Unregister a handshake with its outcome, ``done`` or ``failed``; once is enough."""
        if handshake not in self._in_progress:
            return
        del self._in_progress[handshake]
        self._half_done.pop(handshake, None)
        self._new.pop(handshake, None)
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        self._limiter.metrics.handshakes_ended.labels(outcome).inc()

    def close(self) -> None:
        """Abort all handshakes that are not done."""
        for handshake in self._in_progress:
            handshake.abort()

    def _run_pending(self) -> None:
        waiting = self._half_done or self._new
        self._running = bool(waiting)
        if not waiting:
            return
        self._loop.call_soon(self._run_pending)
        deadline = self._loop.time() + self._limiter.timeouts.handshake_budget
        while waiting:
            handshake, _ = waiting.popitem()
            handshake.step()
            if self._loop.time() >= deadline:
                return
            waiting = self._half_done or self._new
