"""One client's connection: its limits, and what answers its requests."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from aiohttp import StreamReader, web

from httpd.access_log import UNMATCHED
from httpd.middleware import identity_headers
from httpd.server.deadlines import Deadlines
from httpd.server.handshakes import RAW_TRANSPORT
from httpd.server.lane import Accepted, Lane, Peer, peer_of
from httpd.server.limits import ConnectionLimiter, UnfinishedRequests
from httpd.server.requests import EMPTY_LINE, IncomingRequest, RequestRejected, rejection

READ_BUFFER_BYTES = 64 * 1024
# What may wait behind a request that is not answered yet, before nothing more is read.
MAX_BYTES_BEHIND = 64 * 1024
# No handler keeps more of a body than this: a larger one is rejected, or used as it arrives.
MAX_KEPT_BODY_BYTES = 1024 * 1024
# A body that the lane does not have by then is left to aiohttp, which limits its time.
WHOLE_REQUEST_SECONDS = 2.0
TOO_MANY_CONNECTIONS = "too many connections"
RETRY_AFTER = {"Retry-After": "5"}


@dataclass(frozen=True)
class Responders:
    """What answers the requests of a listener's connections: aiohttp, and the lane if there is one.

    All connections are read through one buffer: what is read is copied before the next read.
    """

    daemon: str
    make_handler: Callable[[], web.RequestHandler]
    lane: Lane | None
    unfinished: UnfinishedRequests = field(default_factory=UnfinishedRequests)
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BUFFER_BYTES)))


class HttpConnection(asyncio.BufferedProtocol):
    """Lets the lane answer the requests of a client at first, and then aiohttp.

    The lane takes plain requests with a valid key. From the first other one on, all go to aiohttp.
    The same limits hold for both: there are at most so many connections, a request's head must be
    complete within its time, and a client that takes nothing of an answer for too long is cut off.
    A client that has shown no valid key has as little time between requests as for the first one.
    At the end of the process, the body of a request that has begun may still arrive.

    Requests are answered one at a time. aiohttp gets a head once it is complete, then the body as
    it arrives. What the client sends behind it waits here, and is counted, until the answer has
    been taken.
    """

    def __init__(
        self, limiter: ConnectionLimiter, responders: Responders, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._limiter = limiter
        self._responders = responders
        self._loop = loop
        self._lane: Lane | None = None
        self._handler: web.RequestHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._raw_transport: asyncio.Transport | None = None
        self._input = bytearray()
        self.gathered_body = bytearray()
        self._awaited = 0  # bytes of a request of which the lane has seen the head
        self._arriving: IncomingRequest | None = None  # aiohttp does not have its head yet
        self._body: IncomingRequest | None = None
        self._content: StreamReader | None = None
        self._kept_body_bytes = self._held_bytes = 0
        self._in_progress = self._has_begun = self._writing_paused = False
        self._is_rejected = self._is_last = self._is_reading_paused = False
        self.has_shown_key = False
        self._deadlines = Deadlines(
            limiter.timeouts,
            on_late=self._close_late,
            on_stalled=partial(self.close_now, "stalled"),
            loop=loop,
        )
        # TLS makes the connection only after the handshake, which counts too.
        self._connected_at = self._last_activity = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or an answer being sent."""
        return self._in_progress or self._writing_paused

    @property
    def may_be_closed(self) -> bool:
        """Whether it may be closed to make room: a client without a key is not waited for."""
        # Answers of the lane are small: a client that makes them wait takes none.
        is_sending = self._writing_paused and self.has_shown_key and self._handler is not None
        return not (self._in_progress or is_sending)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections already."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._raw_transport = transport.get_extra_info(RAW_TRANSPORT, transport)
        # All that waits to be sent is watched. With high=0, asyncio's TLS would always be paused.
        over_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=1 if over_tls else 0)
        if not self._limiter.acquire(self):
            status = HTTPStatus.SERVICE_UNAVAILABLE
            identity = identity_headers(self._responders.daemon)
            transport.write(rejection(status, TOO_MANY_CONNECTIONS, RETRY_AFTER | identity))
            self._close()
            return
        self._deadlines.expect_head(self._connected_at, "no_request")
        self._idle_timer = self._loop.call_later(self._limiter.timeouts.idle, self._check_idle)
        self._lane = self._responders.lane
        if self._lane is not None:
            self._peer = peer_of(transport)
            self._is_of_proxy = self._lane.proxies.are_at(self._peer.address)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release what the connection holds."""
        self._deadlines.cancel()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._handler is not None:
            self._handler.connection_lost(exc)
        self._arriving = self._body = None
        self._in_progress = self._writing_paused = False
        self._input.clear()
        self.hold(0)
        self._limiter.release(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._responders.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Answer what was read, or let aiohttp have it."""
        if self._is_rejected:
            return
        data = bytes(self._responders.buffer[:nbytes])
        if self._lane is not None and not self._input:
            answered = self._answer_in_lane(self._lane, data)
            if answered == nbytes:
                return
            data = data[answered:]
        self._input += data
        self._pass_on(self._loop.time())

    def _answer_in_lane(self, lane: Lane, data: bytes) -> int:
        """Answer whole requests; return where they end. From the first other one on, leave all."""
        start = self._awaited = 0
        while not (self._in_progress or self._writing_paused):
            body = data.find(EMPTY_LINE, start) + len(EMPTY_LINE)
            if body < len(EMPTY_LINE):
                break
            accepted = lane.accept(data[start:body])
            if accepted is None:
                self._lane = None
                break
            end = body + accepted.content_length
            if end > len(data):
                self._awaited = end - start
                self._deadlines.after(WHOLE_REQUEST_SECONDS, self._leave_lane)
                break
            if not self._answer(lane, accepted, data[body:end]):
                self._lane = None
                break
            start = end
        return start

    def _pass_on(self, since: float) -> None:
        """Let the lane or aiohttp have what is due of the bytes that have arrived since then."""
        assert self._transport is not None
        while not self._transport.is_closing() and self._take_step(since):
            pass
        if self._body is None and len(self._input) > self._awaited + MAX_BYTES_BEHIND:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self.hold(len(self._input) + self._kept_body_bytes)

    def _take_step(self, since: float) -> bool:
        """Take a head, or what has arrived of a body; return whether there may be more to do."""
        if self._body is not None:
            return self._has_begun and self._pass_body(self._body)
        is_enough = len(self._input) >= max(1, self._awaited)
        if self.is_busy or self._is_last or not is_enough:
            return False
        if self._lane is not None and self._answer_pieces(self._lane):
            return True
        return not self._awaited and self._take_head(since)

    def _answer_pieces(self, lane: Lane) -> bool:
        """Let the lane answer what did not arrive at once; return whether there was anything."""
        answered = self._answer_in_lane(lane, bytes(self._input))
        if not answered:
            return False
        del self._input[:answered]
        self._arriving = None
        if not self._awaited:
            self._deadlines.head_arrived()
        self.hold(0)
        return True

    def _take_head(self, since: float) -> bool:
        """Take a head for aiohttp; return whether it is complete."""
        if self._arriving is None:
            self._arriving = IncomingRequest()
        try:
            is_whole = self._arriving.take_head(self._input)
        except RequestRejected as error:
            self._reject_head(error.status, str(error))
            return False
        if is_whole:
            self._leave_to_aiohttp(self._arriving)
        elif self._input:
            self._deadlines.expect_head(since, "slow_head")
        return is_whole

    def _answer(self, lane: Lane, accepted: Accepted, body: bytes) -> bool:
        """Let the lane answer a request, now or later; return False if it is not for the lane."""
        started = time.perf_counter()
        if not self.has_shown_key:
            self._deadlines.head_arrived()
            self._became_known()
        peer = self._peer
        if self._is_of_proxy and accepted.client is not None:  # it may be one of many clients
            peer = peer._replace(address=accepted.client)
        try:
            response = accepted.respond(peer, body)
        except Exception as error:
            self._send(lane, accepted, peer, started, error)
            return True
        if response is None:
            return False
        if response.durable is None:
            self._send(lane, accepted, peer, started, response.body)
        else:
            self._in_progress = True
            self._limiter.changed(self)
            answer = partial(self._send, lane, accepted, peer, started)
            response.durable.add_done_callback(partial(self._on_durable, answer, response.body))
        return True

    def _on_durable(
        self,
        answer: Callable[[bytes | Exception], None],
        body: bytes,
        durable: asyncio.Future[None],
    ) -> None:
        """Answer the request that waited, and go on with those behind it."""
        assert self._transport is not None
        self._in_progress = False
        if durable.cancelled():
            self._transport.abort()
            return
        error = durable.exception()
        if error is None or isinstance(error, Exception):
            answer(error or body)
        if self._limiter.stopping:
            self._close()
            self._limiter.changed(self)
        elif not self._writing_paused:
            self._go_on()

    def _send(
        self,
        lane: Lane,
        accepted: Accepted,
        peer: Peer,
        started: float,
        result: bytes | Exception,
    ) -> None:
        """Answer a request of the lane, unless its client has left: it counts all the same.

        aiohttp must not repeat one that has failed: it may have had its effect.
        """
        assert self._transport is not None
        problem = None
        if isinstance(result, Exception):
            problem = lane.errors.problem(result, path=accepted.path)
            response = lane.encode_problem(problem)
        else:
            response = lane.encode(result)
        if not self._transport.is_closing():
            self._transport.write(response)
        self._last_activity = self._loop.time()
        lane.record(accepted, peer, time.perf_counter() - started, problem)
        self._limiter.used(self)

    def _leave_lane(self) -> None:
        """Leave a request to aiohttp whose body the lane has waited for in vain."""
        assert self._transport is not None
        if self._awaited and not self._transport.is_closing():
            self._lane, self._awaited = None, 0
            self._deadlines.head_arrived()
            self._pass_on(self._loop.time())

    def _leave_to_aiohttp(self, request: IncomingRequest) -> None:
        """Let aiohttp answer a request, and all that follow."""
        assert self._transport is not None
        self._arriving = self._lane = None
        if self._handler is None:
            self._handler = self._responders.make_handler()
            self._handler.connection_made(self._transport)
            if self._idle_timer is not None:  # aiohttp has its own
                self._idle_timer.cancel()
        # aiohttp closes the connection if it finds the head malformed; else the request begins.
        self._deadlines.expect_head(self._loop.time(), "slow_head")
        self._in_progress, self._has_begun = True, False
        self._limiter.changed(self)
        self._body = request
        self._handler.data_received(request.head)
        if request.is_complete:
            self._end_request()

    def _pass_body(self, body: IncomingRequest) -> bool:
        """Pass on what has arrived of a body; return whether all of it has."""
        assert self._handler is not None
        arrived = body.take_body(self._input)
        if self._in_progress and self._kept_body_bytes + len(arrived) <= MAX_KEPT_BODY_BYTES:
            self._kept_body_bytes += len(arrived)
        else:
            self._kept_body_bytes = 0
        if arrived:
            self._handler.data_received(arrived)
        if body.is_malformed:
            self._reject_body()
        if not body.is_complete:
            if len(self._input) >= len(EMPTY_LINE):  # more than is parsed at once
                self._loop.call_soon(self._go_on)
            return False
        self._end_request()
        return True

    def _reject_body(self) -> None:
        """Let the handler reject a body whose end cannot be found; no request can follow it."""
        self._is_rejected = True
        self._input.clear()
        if self._content is not None:
            self._content.set_exception(web.RequestPayloadError("the chunks are malformed"))
            self._content.feed_eof()  # or aiohttp would wait for the rest of it

    def _end_request(self) -> None:
        """Record that all of a request has arrived: what follows is another."""
        self._body = None
        self._kept_body_bytes = 0
        self.hold(0)

    def _reject_head(self, status: HTTPStatus, text: str) -> None:
        """Answer with an error, and close once the client has had time to read that."""
        assert self._transport is not None
        self._limiter.metrics.observe(UNMATCHED, "other", status, 0.0)
        self._is_rejected = True
        self._input.clear()
        self._transport.write(rejection(status, text, identity_headers(self._responders.daemon)))
        self._deadlines.after(self._limiter.timeouts.linger, self._close)
        with suppress(OSError):  # the client has left since it was answered
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
        if not self.has_shown_key:
            self._became_known()
        self._limiter.occupy(self, name)

    def _became_known(self) -> None:
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
        self._loop.call_soon(self._go_on)
        return not self._is_rejected

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

    def finish(self) -> None:
        """Take no request but those whose bytes have arrived."""
        self._leave_lane()

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is being answered."""
        if not self.is_busy:
            self._close()

    def _check_idle(self) -> None:
        """Close the connection if nothing has happened for long; aiohttp does so with its own."""
        left = self._limiter.timeouts.idle
        if not self.is_busy:
            left += self._last_activity - self._loop.time()
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._check_idle)
        else:
            self._close()

    def close_now(self, reason: str) -> None:
        """Close it without waiting for the client; the reason is counted."""
        self._limiter.metrics.connections_cut_off.labels(reason).inc()
        # The loss is reported later, when all clients that have sent something have been read.
        self._input.clear()
        self.gathered_body.clear()
        if self._content is not None and self._content.exception() is None:
            with suppress(RuntimeError):  # its handler waits: there is nothing to forget
                self._content.read_nowait()
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _close_late(self, reason: str) -> None:
        self._limiter.metrics.connections_cut_off.labels(reason).inc()
        self._close()

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
        if self._handler is not None:
            self._handler.pause_writing()
        self._limiter.changed(self)
        if self._raw_transport is not None:
            # Below TLS: bytes are taken there, also while the transport above is closing.
            self._deadlines.watch_writing(self._raw_transport)

    def resume_writing(self) -> None:
        """Stop watching, and go on, or close behind the last answer of the lane."""
        self._writing_paused = False
        self._last_activity = self._loop.time()
        self._deadlines.stop_watching()
        if self._handler is not None:
            self._handler.resume_writing()
        elif self._limiter.stopping and not self._in_progress:
            self._close()
        self._loop.call_soon(self._go_on)
        self._limiter.changed(self)
