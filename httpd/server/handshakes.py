"""The TLS handshakes of a listener, a step at a time, so that they keep nobody else waiting."""

import asyncio
from typing import Protocol

from httpd.server.limits import ConnectionLimiter
from httpd.server.open_files import RESERVED_DESCRIPTORS

# Descriptors for clients that are too many and are told so, which over TLS takes a handshake.
REFUSAL_DESCRIPTORS = RESERVED_DESCRIPTORS // 2


class Handshake(Protocol):
    """One client's handshake."""

    def step(self) -> None:
        """Do what can be done with what the client said; costs a millisecond or more."""

    def abort(self) -> None:
        """Hang up."""


class HandshakeScheduler:
    """Who is at it, and whose turn it is.

    A step costs as much as dozens of requests, so each pass of the event loop has time for a few
    at most: whoever is connected is answered in between. When more clients come than there is time
    for, those half done go first and then who came last. Who has waited longest gives up next, and
    what is spent on them is lost: served in the order in which they came, all would give up.
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
        """Count a handshake in; False when there are too many clients even to be told so."""
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
        """Let it have its step when it is its turn."""
        waiting = self._half_done if half_done else self._new
        waiting[handshake] = None
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run_pending)

    def end(self, handshake: Handshake, outcome: str) -> None:
        """Count a handshake out, once: it is ``done`` or has ``failed``."""
        if handshake not in self._in_progress:
            return
        self._in_progress.discard(handshake)
        self._half_done.pop(handshake, None)
        self._new.pop(handshake, None)
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        self._limiter.metrics.handshakes_ended.labels(outcome).inc()

    def close(self) -> None:
        """Hang up on all that are not done."""
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
