"""One client's connection: its limits, and what answers its requests."""

import asyncio
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from aiohttp import StreamReader, web

from httpd.access_log import UNMATCHED
from httpd.server.deadlines import Deadlines
from httpd.server.framing import Body, HeadRefused, body_after, take_head, without_other_protocols
from httpd.server.lane.connection import LaneConnection
from httpd.server.limits import ConnectionLimiter
from httpd.server.responders import (
    REFUSED_HEADS,
    RETRY_AFTER,
    TOO_MANY_CONNECTIONS,
    Responders,
)
from httpd.server.tls_protocol import RAW_TRANSPORT

# What may wait behind a request that is not answered yet, before nothing more is read.
MAX_BYTES_BEHIND = 64 * 1024
# No handler keeps more of a body than this: a larger one is refused, or used as it arrives.
MAX_KEPT_BODY_BYTES = 1024 * 1024


class HttpConnection(asyncio.BufferedProtocol):
    """Passes the bytes of a client to the lane at first, and after the hand-over to aiohttp.

    The same limits hold for both: there are at most so many connections, a request's head must be
    complete within its time, and a client that takes nothing of an answer for too long is cut off.
    A client that has shown no valid key has as little time between requests as for the first one.
    At the end of the process, the body of a request that has begun may still arrive.

    aiohttp gets one request at a time: a head once it is complete, then the body as it arrives.
    What the client sends behind it waits here, and is counted, until the answer has been taken.
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
        self._input = bytearray()
        self.gathered_body = bytearray()
        self._body: Body | None = None
        self._content: StreamReader | None = None
        self._kept_body_bytes = self._held_bytes = 0
        self._in_progress = self._has_begun = self._writing_paused = False
        self._is_refused = self._is_last = self._is_reading_paused = False
        self.has_shown_key = False
        self._deadlines = Deadlines(
            limiter.timeouts,
            on_late=self._close_late,
            on_stalled=partial(self.close_now, "stalled"),
            loop=loop,
        )
        # TLS makes the connection only after the handshake, which counts too.
        self._connected_at = loop.time()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or an answer being sent."""
        return self._is_answering or self._writing_paused

    @property
    def may_be_closed(self) -> bool:
        """Whether it may be closed to make room: a client without a key is not waited for."""
        if self._lane is not None:  # its answers are small: its client takes none
            return not self._lane.is_waiting
        return not self._in_progress and not (self._writing_paused and self.has_shown_key)

    @property
    def _is_answering(self) -> bool:
        return self._in_progress or (self._lane is not None and self._lane.is_waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections already."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._raw_transport = transport.get_extra_info(RAW_TRANSPORT, transport)
        # All that waits to be sent is watched. With high=0, asyncio's TLS would always be paused.
        over_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=1 if over_tls else 0)
        if self._limiter.acquire(self):
            self._begin(transport)
            return
        transport.write(self._responders.refusal(*TOO_MANY_CONNECTIONS, RETRY_AFTER))
        self._close()

    def _begin(self, transport: asyncio.Transport) -> None:
        self._deadlines.expect_head(self._connected_at, "no_request")
        if self._responders.lane is None:
            self.hand_over(b"", self._connected_at)
        else:
            self._lane = LaneConnection(
                self._responders.lane,
                transport,
                owner=self,
                idle_seconds=self._limiter.timeouts.idle,
                loop=self._loop,
            )

    def hand_over(self, unanswered: bytes, since: float) -> None:
        """Leave the connection to aiohttp, with the bytes that have arrived since then.

        One that is closing is left to nobody: aiohttp would be told of its loss before it begins.
        """
        assert self._transport is not None
        self._lane = None
        if self._transport.is_closing():
            self._is_refused = True
            self.hold(0)
            return
        self._handler = self._responders.make_handler()
        self._handler.connection_made(self._transport)
        if self._writing_paused:
            self._handler.pause_writing()
        self._input += unanswered
        self._pass_on(since)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release what the connection holds."""
        self._deadlines.cancel()
        if self._lane is not None:
            self._lane.close()
        if self._handler is not None:
            self._handler.connection_lost(exc)
        self._lane = None
        self._in_progress = self._writing_paused = False
        self._input.clear()
        self.hold(0)
        self._limiter.release(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._responders.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read to the lane or to aiohttp."""
        data = self._responders.buffer[:nbytes]
        if self._lane is not None:
            self._lane.data_received(bytes(data))
        elif not self._is_refused:
            self._input += data
            self._pass_on(self._loop.time())

    def _pass_on(self, since: float) -> None:
        """Let aiohttp have what is due of the bytes that have arrived since then."""
        assert self._transport is not None
        while self._handler is not None and not self._transport.is_closing():
            if self._body is not None:
                if not self._has_begun or not self._pass_body(self._handler, self._body):
                    break
            elif self.is_busy or self._is_last or not self._pass_head(self._handler, since):
                break
        if self._body is None and len(self._input) > MAX_BYTES_BEHIND:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self.hold(len(self._input) + self._kept_body_bytes)

    def _pass_body(self, handler: web.RequestHandler, body: Body) -> bool:
        """Pass on what has arrived of a body; return whether all of it has."""
        arrived = body.take(self._input)
        if self._in_progress and self._kept_body_bytes + len(arrived) <= MAX_KEPT_BODY_BYTES:
            self._kept_body_bytes += len(arrived)
        else:
            self._kept_body_bytes = 0
        if arrived:
            handler.data_received(arrived)
        if body.is_malformed:
            self._refuse_body()
        if not body.is_complete:
            return False
        self._end_request()
        return True

    def _pass_head(self, handler: web.RequestHandler, since: float) -> bool:
        """Pass on a head; return whether it is complete."""
        try:
            head = take_head(self._input)
        except HeadRefused as error:
            self._refuse_head(*REFUSED_HEADS[type(error)])
            return False
        if head is None:
            if self._input:
                self._deadlines.expect_head(since, "slow_head")
            return False
        # aiohttp closes the connection if it finds the head malformed; else the request begins.
        self._deadlines.expect_head(since, "slow_head")
        self._in_progress, self._has_begun = True, False
        self._limiter.changed(self)
        self._body = body_after(head)
        handler.data_received(without_other_protocols(head))
        if self._body is None:
            self._end_request()
        return True

    def _refuse_body(self) -> None:
        """Let the handler refuse a body whose end cannot be found; no request can follow it."""
        self._is_refused = True
        self._input.clear()
        if self._content is not None:
            self._content.set_exception(web.RequestPayloadError("the chunks are malformed"))
            self._content.feed_eof()  # or aiohttp would wait for the rest of it

    def _end_request(self) -> None:
        """Record that all of a request has arrived: what follows is another."""
        self._body = None
        self._kept_body_bytes = 0
        self.hold(0)

    def _refuse_head(self, status: HTTPStatus, text: bytes) -> None:
        """Answer with an error, and close once the client has had time to read that."""
        assert self._transport is not None
        self._limiter.metrics.observe(UNMATCHED, "other", status, 0.0)
        self._is_refused = True
        self._input.clear()
        self._transport.write(self._responders.refusal(status, text))
        self._deadlines.linger(self._close)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def hold(self, size: int) -> None:
        """Record how many bytes of unanswered requests it holds; 0 ends what it began."""
        if size != self._held_bytes:
            self._held_bytes = size
            self._responders.unfinished.hold(self, size)

    def eof_received(self) -> None:
        """Let the transport be closed."""
        if self._handler is not None:
            self._handler.eof_received()

    def key_shown(self, name: str) -> None:
        """Record that the request has a valid key, of this name; NoPlace."""
        self._became_known()
        self._limiter.occupy(self, name)

    def _became_known(self) -> None:
        if not self.has_shown_key:
            self.has_shown_key = True
            self._limiter.changed(self)

    def request_begun(self, content: StreamReader) -> None:
        """Record that aiohttp has a request's head; its body is to arrive there."""
        self._deadlines.head_arrived()
        self._content, self._has_begun = content, True
        if self._body is not None:
            self._pass_on(self._loop.time())

    def request_ended(self) -> bool:
        """Record that a request has its answer, which is to be sent next.

        Returns whether another request may follow.
        """
        self._in_progress = False
        self._content = None
        self._kept_body_bytes = 0
        self.gathered_body.clear()
        self._limiter.changed(self)
        if self._handler is not None:
            self._loop.call_soon(self._go_on)
        return not self._is_refused

    def answer_is_last(self) -> None:
        """Record that aiohttp closes the connection behind this answer: no request may follow."""
        self._is_last = True

    def _go_on(self) -> None:
        """Go on with the requests that have arrived, now that one is answered."""
        if self._transport is None or self._transport.is_closing():
            return
        now = self._loop.time()
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        self._pass_on(now)
        if not (self.has_shown_key or self.is_busy):
            self._deadlines.expect_head(now, "no_request")

    def answered_at_once(self) -> None:
        """Record that the lane has answered a request."""
        self._limiter.used(self)

    def first_answered(self) -> None:
        """Record that the lane has taken its first request, which had a valid key."""
        self._deadlines.head_arrived()
        self._became_known()

    def waiting_changed(self) -> None:
        """Record that a request in the lane has begun or ceased to wait."""
        self._limiter.changed(self)

    def finish(self) -> None:
        """Take no request but those whose bytes have arrived."""
        if self._lane is not None:
            self._lane.finish()

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is being answered."""
        if not self.is_busy:
            self._close()

    def close_now(self, reason: str) -> None:
        """Close it without waiting for the client; the reason is counted."""
        self._limiter.metrics.connections_cut_off.labels(reason).inc()
        # The loss is reported later, when all clients that have sent something have been read.
        self._input.clear()
        self.gathered_body.clear()
        if self._lane is not None:
            self._lane.drop_input()
        if self._content is not None and self._content.exception() is None:
            with suppress(RuntimeError):  # its handler waits: there is nothing to forget
                self._content.read_nowait()
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _close(self) -> None:
        # After a second close, other calls of asyncio's TLS transport raise AttributeError.
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.close()
        if self._raw_transport is not None and self._raw_transport is not self._transport:
            self._raw_transport.close()  # TLS would wait for the client's farewell

    def pause_writing(self) -> None:
        """Watch from now on whether the client takes anything."""
        self._writing_paused = True
        if self._lane is not None:
            self._lane.pause_writing()
        elif self._handler is not None:
            self._handler.pause_writing()
        self._limiter.changed(self)
        if self._raw_transport is not None:
            # Below TLS: bytes are taken there, also while the transport above is closing.
            self._deadlines.watch_writing(self._raw_transport)

    def resume_writing(self) -> None:
        """Stop watching."""
        self._writing_paused = False
        self._deadlines.stop_watching()
        if self._lane is not None:
            self._lane.resume_writing()
        elif self._handler is not None:
            self._handler.resume_writing()
            self._loop.call_soon(self._go_on)
        self._limiter.changed(self)

    def _close_late(self, reason: str) -> None:
        self._limiter.metrics.connections_cut_off.labels(reason).inc()
        self._close()
