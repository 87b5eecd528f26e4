"""Schedules the TLS handshakes of a listener, so that they do not delay other connections."""

import asyncio
from typing import Protocol

from httpd.server.limits import ConnectionLimiter
from httpd.server.open_files import RESERVED_DESCRIPTORS

# Descriptors for clients beyond the limit: over TLS, to send a refusal takes a handshake.
REFUSAL_DESCRIPTORS = RESERVED_DESCRIPTORS // 2


class Handshake(Protocol):
    """One client's handshake."""

    def step(self) -> None:
        """Process the bytes that the client sent; takes a millisecond or more."""

    def abort(self) -> None:
        """Close the connection at once."""


class HandshakeScheduler:
    """The handshakes in progress, and the order of their steps.

    A step costs as much as dozens of requests, so each iteration of the event loop has time for a
    few at most, and connections are served in between. Under overload, half-done handshakes go
    first, then the newest ones. The clients that have waited longest give up first, and work for
    them is lost: in the order of arrival, all would give up.
    """

    def __init__(self, limiter: ConnectionLimiter, *, loop: asyncio.AbstractEventLoop) -> None:
        self.timeout_seconds = limiter.timeouts.handshake
        self._limiter = limiter
        self._loop = loop
        self._in_progress: set[Handshake] = set()
        self._new: dict[Handshake, None] = {}
        self._half_done: dict[Handshake, None] = {}
        self._running = False

    def begin(self, handshake: Handshake) -> bool:
        """Count a handshake in.

        Return False if there is no descriptor left even to send a refusal.
        """
        if (
            len(self._in_progress) + self._limiter.connected
            >= self._limiter.max_connections + REFUSAL_DESCRIPTORS
        ):
            self._limiter.metrics.connections_refused.inc()
            return False
        self._in_progress.add(handshake)
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        return True

    def schedule_step(self, handshake: Handshake, *, half_done: bool) -> None:
        """Queue the next step of a handshake."""
        waiting = self._half_done if half_done else self._new
        waiting[handshake] = None
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run_pending)

    def end(self, handshake: Handshake, outcome: str) -> None:
        """Count a handshake out, the first time: its outcome is ``done`` or ``failed``."""
        if handshake not in self._in_progress:
            return
        self._in_progress.discard(handshake)
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
