"""One client's connection: its limits, and answers to what is no HTTP."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from httpd.bodies import SERVER, message
from httpd.metrics import RequestMetrics

IDLE_SECONDS = 75.0  # longer than a heartbeat, so that agents keep their connection
HEADER_SECONDS = 10.0
LINGER_SECONDS = 2.0
FULL_BODY = b'{"message":"too many connections"}'
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(FULL_BODY), FULL_BODY)


@dataclass
class Doors:
    """What the connections of one listener have in common."""

    limit: int
    metrics: RequestMetrics
    connected: int = 0

    def enter(self) -> bool:
        """Count a connection in; False when there are too many."""
        if self.connected >= self.limit:
            self.metrics.connections_refused.inc()
            return False
        self.connected += 1
        self.metrics.connections.set(self.connected)
        return True

    def leave(self) -> None:
        """Count a connection out."""
        self.connected -= 1
        self.metrics.connections.set(self.connected)


class _NoAccessLog(AbstractAccessLogger):
    """The shell has a log of its own."""

    @property
    def enabled(self) -> bool:
        return False

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write nothing."""


class Connection(web.RequestHandler):
    """aiohttp's connection, with three more limits.

    A request's headers must be complete ten seconds after their first byte; there are at most so
    many connections; what is malformed gets a Message like every other error.
    """

    def __init__(
        self, manager: web.Server, *, doors: Doors, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            access_log_class=_NoAccessLog,
            auto_decompress=False,  # compressed bodies are refused, so nothing unpacks them
        )
        self._doors = doors
        self._entered = False
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many already."""
        self._entered = self._doors.enter()
        super().connection_made(transport)
        if not self._entered and self.transport is not None:
            self.transport.write(FULL)
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection out."""
        if self._entered:
            self._entered = False
            self._doors.leave()
        self._stop_header_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; what is left waiting for the end of its headers waits for a limited time."""
        super().data_received(data)
        waiting = self._waiter is not None and not self._waiter.done()
        if not waiting:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self._loop.call_later(HEADER_SECONDS, self.force_close)

    def resume_reading(self, *args: bool, **options: bool) -> None:
        """Resume what was paused: aiohttp asks for it twice for each body, and would parse anew."""
        if self._reading_paused:
            super().resume_reading(*args, **options)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never reached the shell: malformed HTTP, for the most part."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("unhandled", exc_info=exc)
        return _malformed(status)


def _malformed(status: int) -> web.Response:
    known = status < HTTPStatus.INTERNAL_SERVER_ERROR
    text = "this is no well-formed HTTP/1.1 request" if known else "an error of this service"
    response = message(text, status=status, headers={"Server": SERVER})
    response.force_close()
    return response
