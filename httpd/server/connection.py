"""One client's connection: its limits, and who answers its requests."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from httpd.server.lane import Lane
from httpd.server.lane_connection import LaneConnection
from httpd.server.limits import ConnectionLimiter
from httpd.server.tls_protocol import RAW_TRANSPORT

TOO_MANY_CONNECTIONS_BODY = b'{"message":"too many connections"}'
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(TOO_MANY_CONNECTIONS_BODY), TOO_MANY_CONNECTIONS_BODY)
READ_BUFFER_BYTES = 64 * 1024


@contextmanager
def relaxed_write_buffers(request: web.Request, *, high: int | None = None) -> Iterator[None]:
    """While the context is open, let the next piece be made before the last one is all sent.

    Up to ``high`` bytes may wait to be sent, asyncio's default if None.

    A client that leaves in the middle ends it, which is no error.
    """
    layers = _layers(request.transport)
    before = [layer.get_write_buffer_limits() for layer in layers]
    for layer in layers:
        layer.set_write_buffer_limits(high=high)
    try:
        with suppress(ConnectionError):
            yield
    finally:
        if request.transport is not None:  # it is not lost
            for layer, (low, high_before) in zip(layers, before, strict=True):
                layer.set_write_buffer_limits(low=low, high=high_before)


def _layers(transport: asyncio.WriteTransport | None) -> list[asyncio.WriteTransport]:
    """Return a connection's transport, and the one below where that is TLS."""
    if transport is None:
        return []
    return list(dict.fromkeys([transport, transport.get_extra_info(RAW_TRANSPORT, transport)]))


class Responders:
    """Who answers the requests of a listener's connections: the lane, if there is one, and aiohttp.

    All connections are read through one buffer: what is read is copied before the next read.
    """

    def __init__(
        self, *, make_handler: Callable[[], web.RequestHandler], lane: Lane | None
    ) -> None:
        self.make_handler = make_handler
        self.lane = lane
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))


class HttpConnection(asyncio.BufferedProtocol):
    """Stands between a transport and whoever answers: the lane at first, then aiohttp for good.

    Limits hold for both: there are at most so many connections, a request's head must be complete
    within its time, and a client that takes nothing of an answer for too long is cut off. At the
    end of the process, the body of a request that has begun may still arrive.
    """

    def __init__(
        self, limiter: ConnectionLimiter, responders: Responders, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._limiter = limiter
        self._responders = responders
        self._loop = loop
        self._lane: LaneConnection | None = None
        self._handler: web.RequestHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._raw_transport: asyncio.Transport | None = None
        self._in_progress = False
        self._writing_paused = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._writer_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or an answer being sent."""
        in_lane = self._lane is not None and self._lane.is_waiting
        return in_lane or self._in_progress or self._writing_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections already."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._raw_transport = raw = transport.get_extra_info(RAW_TRANSPORT, transport)
        # All that waits to be sent is watched. With high=0, asyncio's TLS would always be paused.
        over_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=1 if over_tls else 0)
        if self._limiter.acquire(self):
            self._begin(transport)
            return
        transport.write(TOO_MANY_CONNECTIONS)
        transport.close()
        if raw is not transport:
            raw.close()  # TLS would wait for close_notify, and hold a descriptor for it

    def _begin(self, transport: asyncio.Transport) -> None:
        if self._responders.lane is None:
            self.hand_over(b"", self._loop.time())
        else:
            self._lane = LaneConnection(
                self._responders.lane,
                transport,
                owner=self,
                idle_seconds=self._limiter.timeouts.idle,
                loop=self._loop,
            )

    def hand_over(self, unanswered: bytes, since: float) -> None:
        """Leave the connection to aiohttp, with the bytes that have arrived since then."""
        assert self._transport is not None
        self._lane = None
        self._handler = self._responders.make_handler()
        self._handler.connection_made(self._transport)
        if self._writing_paused:
            self._handler.pause_writing()
        if unanswered:
            self._receive(self._handler, unanswered, since)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release what the connection holds."""
        self._stop_header_timer()
        self._stop_writer_timer()
        if self._lane is not None:
            self._lane.close()
        if self._handler is not None:
            self._handler.connection_lost(exc)
        self._lane = None
        self._in_progress = self._writing_paused = False
        self._limiter.release(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._responders.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read to whoever answers."""
        data = bytes(self._responders.buffer[:nbytes])
        if self._lane is not None:
            self._lane.data_received(data)
        elif self._handler is not None:
            self._receive(self._handler, data, self._loop.time())

    def _receive(self, handler: web.RequestHandler, data: bytes, since: float) -> None:
        """Let aiohttp parse; what does not become a request is a head that is not complete yet."""
        if not self.is_busy and self._header_timer is None:
            due = since + self._limiter.timeouts.header
            self._header_timer = self._loop.call_at(due, self._close)
        handler.data_received(data)

    def eof_received(self) -> None:
        """Let the transport be closed."""
        if self._handler is not None:
            self._handler.eof_received()

    def request_begun(self) -> None:
        """Note that aiohttp has a request's head."""
        self._in_progress = True
        self._stop_header_timer()

    def request_ended(self) -> None:
        """Note that a request has its answer, which is to be sent next."""
        self._in_progress = False
        self._limiter.answered(self)

    def finish(self) -> None:
        """Take no request but those whose bytes have arrived."""
        if self._lane is not None:
            self._lane.finish()

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is being answered."""
        if not self.is_busy:
            self._close()

    def abort(self) -> None:
        """Close the connection at once; what is not sent yet is lost."""
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _close(self) -> None:
        # A TLS transport does not bear to be closed twice.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def pause_writing(self) -> None:
        """Watch from now on whether the client takes anything."""
        self._writing_paused = True
        if self._lane is not None:
            self._lane.pause_writing()
        elif self._handler is not None:
            self._handler.pause_writing()
        self._check_writer(last_pending=None)

    def resume_writing(self) -> None:
        """Stop watching."""
        self._writing_paused = False
        self._stop_writer_timer()
        if self._lane is not None:
            self._lane.resume_writing()
        elif self._handler is not None:
            self._handler.resume_writing()
        self._limiter.answered(self)

    def _check_writer(self, last_pending: int | None) -> None:
        # Below TLS: bytes are taken there, also while the transport above is closing.
        transport = self._raw_transport
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
