"""One client's connection: its limits, and answers to what is no HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from httpd.bodies import SERVER, message_response
from httpd.instant_connection import InstantConnection
from httpd.server.limits import ConnectionLimiter
from httpd.server.tls import RAW_TRANSPORT

TOO_MANY_CONNECTIONS_BODY = b'{"message":"too many connections"}'
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(TOO_MANY_CONNECTIONS_BODY), TOO_MANY_CONNECTIONS_BODY)


@contextmanager
def relaxed_write_buffers(request: web.Request) -> Iterator[None]:
    """While the context is open, let the next piece be made before the last one is all sent.

    A client that leaves in the middle ends it, which is no error.
    """
    layers = _layers(request.transport)
    before = [layer.get_write_buffer_limits() for layer in layers]
    for layer in layers:
        layer.set_write_buffer_limits()
    try:
        with suppress(ConnectionError):
            yield
    finally:
        if request.transport is not None:  # it is not lost
            for layer, (low, high) in zip(layers, before, strict=True):
                layer.set_write_buffer_limits(low=low, high=high)


def _layers(transport: asyncio.WriteTransport | None) -> list[asyncio.WriteTransport]:
    """Give a connection's transport, and the one below where that is TLS."""
    if transport is None:
        return []
    return list(dict.fromkeys([transport, transport.get_extra_info(RAW_TRANSPORT, transport)]))


class _NoAccessLog(AbstractAccessLogger):
    """The shell has a log of its own."""

    @property
    def enabled(self) -> bool:
        return False

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write nothing."""


class HttpConnection(InstantConnection):
    """aiohttp's connection, with more limits.

    A request's headers must be complete ten seconds after their first byte; a client that takes
    nothing of its answer for thirty is cut off; there are at most so many connections. At the end
    the body of a request under way may still come. What is malformed gets a Message like every
    other error.
    """

    def __init__(
        self, manager: web.Server, *, limiter: ConnectionLimiter, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(
            manager,
            instant=limiter.instant,
            loop=loop,
            keepalive_timeout=limiter.timeouts.idle,
            lingering_time=limiter.timeouts.linger,
            access_log_class=_NoAccessLog,
            auto_decompress=False,  # compressed bodies are refused, so nothing unpacks them
        )
        # A request that was taken before its body had come counts for the parser as never taken,
        # so it may stop one early. aiohttp would not notice, and never let it go on.
        self._max_msg_queue_size -= 1
        self._limiter = limiter
        self._acquired = False
        self._raw_transport: asyncio.Transport | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._writer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many already."""
        self._acquired = self._limiter.acquire()
        if isinstance(transport, asyncio.Transport):
            self._raw_transport = transport.get_extra_info(RAW_TRANSPORT, transport)
            # Whatever waits to be sent is watched, however little; over TLS, 0 would be always.
            transport.set_write_buffer_limits(high=0 if transport is self._raw_transport else 1)
        super().connection_made(transport)
        if not self._acquired and self.transport is not None:
            self.transport.write(TOO_MANY_CONNECTIONS)
            self.force_close()
            if self._raw_transport is not None:
                # TLS would wait for a farewell, and hold a descriptor for it.
                self._raw_transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection out."""
        if self._acquired:
            self._acquired = False
            self._limiter.release()
        self._stop_header_timer()
        self._stop_writer_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; what is left waiting for the end of its headers waits for a limited time."""
        if (self._close or self._force_close) and self._request_in_progress:
            self._feed_while_closing(data)
            return
        answered = self._answered
        super().data_received(data)
        waiting = self._waiter is not None and not self._waiter.done()
        if not waiting or self._answered > answered:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self._loop.call_later(
                self._limiter.timeouts.header, self.force_close
            )

    def resume_reading(self, *args: bool, **options: bool) -> None:
        """Resume what was paused: aiohttp asks for it twice for each body, and would parse anew."""
        if self._reading_paused:
            super().resume_reading(*args, **options)

    def _feed_while_closing(self, data: bytes) -> None:
        # The end has begun: no request is taken any more, but the one under way gets its body.
        ending = self._close, self._force_close
        self._close = self._force_close = False
        super().data_received(data)
        self._close, self._force_close = ending

    def pause_writing(self) -> None:
        """Look from now on whether the client takes anything."""
        super().pause_writing()
        self._check_writer(last_pending=None)

    def resume_writing(self) -> None:
        """Stop looking."""
        self._stop_writer_timer()
        super().resume_writing()

    def _check_writer(self, last_pending: int | None) -> None:
        transport = (
            self._raw_transport
        )  # not `self.transport`: the watch goes on while it is closing
        if transport is None:
            return
        pending = transport.get_write_buffer_size()
        if pending == last_pending:
            transport.abort()
            return
        self._writer_timer = self._loop.call_later(
            self._limiter.timeouts.stall, self._check_writer, pending
        )

    def _stop_writer_timer(self) -> None:
        if self._writer_timer is not None:
            self._writer_timer.cancel()
            self._writer_timer = None

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
        self._limiter.metrics.observe(None, "other", status, 0.0)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("unhandled", exc_info=exc)
        return _error_response(status)


def _error_response(status: int) -> web.Response:
    is_client_error = status < HTTPStatus.INTERNAL_SERVER_ERROR
    text = (
        "this is no well-formed HTTP/1.1 request" if is_client_error else "an error of this service"
    )
    response = message_response(text, status=status, headers={"Server": SERVER})
    response.force_close()
    return response
