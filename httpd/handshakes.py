"""The TLS handshakes of a listener, a step at a time, so that they keep nobody else waiting."""

import asyncio
from typing import Protocol

from httpd.descriptors import RESERVED
from httpd.doors import Doors

# Descriptors for clients that are too many and are told so, which over TLS takes a handshake.
TOLD = RESERVED // 2


class Handshake(Protocol):
    """One client's handshake."""

    def step(self) -> None:
        """Do what can be done with what the client said; costs a millisecond or more."""

    def abort(self) -> None:
        """Hang up."""


class Handshakes:
    """Who is at it, and whose turn it is.

    A step costs as much as dozens of requests, so each pass of the event loop has time for a few
    at most: whoever is connected is answered in between. When more clients come than there is time
    for, those half done go first and then who came last. Who has waited longest gives up next, and
    what is spent on them is lost: served in the order in which they came, all would give up.
    """

    def __init__(self, doors: Doors, *, loop: asyncio.AbstractEventLoop) -> None:
        self.limit_seconds = doors.limits.handshake
        self._doors = doors
        self._loop = loop
        self._in_progress: set[Handshake] = set()
        self._new: dict[Handshake, None] = {}
        self._half_done: dict[Handshake, None] = {}
        self._going = False

    def begin(self, handshake: Handshake) -> bool:
        """Count a handshake in; False when there are too many clients even to be told so."""
        if len(self._in_progress) + self._doors.connected >= self._doors.limit + TOLD:
            self._doors.metrics.connections_refused.inc()
            return False
        self._in_progress.add(handshake)
        self._doors.metrics.handshakes.set(len(self._in_progress))
        return True

    def wants_a_step(self, handshake: Handshake, *, half_done: bool) -> None:
        """Let it have its step when it is its turn."""
        waiting = self._half_done if half_done else self._new
        waiting[handshake] = None
        if not self._going:
            self._going = True
            self._loop.call_soon(self._next)

    def end(self, handshake: Handshake, outcome: str) -> None:
        """Count a handshake out, once: it is ``done`` or has ``failed``."""
        if handshake not in self._in_progress:
            return
        self._in_progress.discard(handshake)
        self._half_done.pop(handshake, None)
        self._new.pop(handshake, None)
        self._doors.metrics.handshakes.set(len(self._in_progress))
        self._doors.metrics.handshakes_ended.labels(outcome).inc()

    def close(self) -> None:
        """Hang up on all that are not done."""
        for handshake in self._in_progress:
            handshake.abort()

    def _next(self) -> None:
        waiting = self._half_done or self._new
        self._going = bool(waiting)
        if not waiting:
            return
        self._loop.call_soon(self._next)
        enough = self._loop.time() + self._doors.limits.handshakes_in_a_row
        while waiting:
            handshake, _ = waiting.popitem()
            handshake.step()
            if self._loop.time() >= enough:
                return
            waiting = self._half_done or self._new
