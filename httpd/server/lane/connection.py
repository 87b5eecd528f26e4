"""One connection in the lane: whole requests, answered in their order, one at a time."""

import asyncio
import time
from functools import partial
from typing import Protocol

from httpd.clients import names_in
from httpd.server.lane.lane import Accepted, Lane, Peer
from httpd.server.lane.plain_head import LANE_MAX_HEAD_BYTES

# A request that is not whole by then is left to aiohttp, which has time limits of its own.
WHOLE_REQUEST_SECONDS = 2.0
# What may wait behind a request that is not answered yet, before nothing more is read.
MAX_BYTES_AHEAD = 64 * 1024
END_OF_HEAD = b"\r\n\r\n"


class Owner(Protocol):
    """The connection that a lane answers for."""

    def hand_over(self, unanswered: bytes, since: float) -> None:
        """Leave the connection to aiohttp, with the bytes that have arrived since then."""

    def first_answered(self) -> None:
        """Record that the first request was taken, which had a valid key."""

    def answered_at_once(self) -> None:
        """Record that a request is answered."""

    def waiting_changed(self) -> None:
        """Record that a request waits to become durable."""

    def request_ended(self) -> bool:
        """Record that a request has its answer, which is to be sent next."""

    def hold(self, size: int) -> None:
        """Record how many bytes of unanswered requests are held; 0 ends what they began."""


class LaneConnection:
    """Answers the plain requests of one connection, until it hands the connection over."""

    __slots__ = (
        "_finishing",
        "_has_answered",
        "_idle_seconds",
        "_idle_timer",
        "_is_holding",
        "_is_of_proxy",
        "_lane",
        "_last_activity",
        "_loop",
        "_needed",
        "_owner",
        "_partial_since",
        "_partial_timer",
        "_peer",
        "_rest",
        "_transport",
        "_writing_paused",
        "is_waiting",
    )

    def __init__(
        self,
        lane: Lane,
        transport: asyncio.Transport,
        *,
        owner: Owner,
        idle_seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._lane = lane
        self._transport = transport
        self._owner = owner
        self._loop = loop
        self._peer = _peer(transport)
        self._is_of_proxy = lane.proxies.are_at(self._peer.address)
        self._rest = bytearray()
        self._needed = 0
        self._partial_since = self._last_activity = loop.time()
        self._partial_timer: asyncio.TimerHandle | None = None
        self._idle_seconds = idle_seconds
        self._idle_timer = loop.call_later(idle_seconds, self._check_idle)
        self._writing_paused = self._finishing = False
        self._has_answered = self._is_holding = False
        self.is_waiting = False  # for a response to become durable

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are whole by now."""
        if self._rest or self.is_waiting or self._writing_paused:
            self._keep(data)
            if self.is_waiting or self._writing_paused:
                if len(self._rest) > MAX_BYTES_AHEAD:
                    self._transport.pause_reading()
                return
            if len(self._rest) < self._needed:
                return
            data = self._take_rest()
        self._answer_all(data)

    def pause_writing(self) -> None:
        """Take no further request for the present."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Go on with the requests that have arrived, or close if the last answer is sent."""
        self._writing_paused = False
        self._last_activity = self._loop.time()
        if self.is_waiting:
            return
        if self._finishing:
            self._end()
        else:
            self._go_on()

    def finish(self) -> None:
        """Close once the request that waits is answered; a partial one is left to aiohttp."""
        self._finishing = True
        if self._rest and not self.is_waiting:
            self._leave(self._take_rest())

    def drop_input(self) -> None:
        """Forget what has arrived: the connection is being closed."""
        self._rest = bytearray()

    def close(self) -> None:
        """Stop the timers."""
        self._idle_timer.cancel()
        self._stop_partial_timer()

    def _answer_all(self, data: bytes) -> None:
        """Answer the whole requests, until one has to wait or is not for the lane."""
        start = 0
        while start < len(data) and not (self.is_waiting or self._writing_paused):
            body = data.find(END_OF_HEAD, start, start + LANE_MAX_HEAD_BYTES) + len(END_OF_HEAD)
            if body < len(END_OF_HEAD):
                self._keep_partial_head(data[start:])
                return
            accepted = self._lane.accept(data[start:body])
            if accepted is None:
                self._leave(data[start:])
                return
            end = body + accepted.content_length
            if end > len(data):
                self._keep_partial(data[start:], needed=end - start)
                return
            if not self._answer(accepted, data[body:end]):
                self._leave(data[start:])
                return
            if self._is_holding or not self._has_answered:
                self._note_progress()
            start = end
        if start < len(data):
            self._keep(data[start:])

    def _note_progress(self) -> None:
        """Record that a request is answered which was the first, or did not arrive at once."""
        if not self._has_answered:
            self._has_answered = True
            self._owner.first_answered()
        if self._is_holding:
            self._is_holding = False
            self._stop_partial_timer()
            self._owner.hold(0)

    def _answer(self, accepted: Accepted, body: bytes) -> bool:
        """Answer a request, now or later; False if it is not for the lane."""
        started = time.perf_counter()
        try:
            response = accepted.respond(self._client(accepted), body)
        except Exception as error:
            self._send_problem(accepted, started, error)
            return True
        if response is None:
            return False
        if response.durable is None:
            self._send(accepted, started, response.body)
        else:
            self.is_waiting = True
            self._owner.waiting_changed()
            on_durable = partial(self._on_durable, accepted, started, response.body)
            response.durable.add_done_callback(on_durable)
        return True

    def _on_durable(
        self, accepted: Accepted, started: float, body: bytes, durable: asyncio.Future[None]
    ) -> None:
        """Answer the request that waited, and go on with those behind it."""
        self.is_waiting = False
        if durable.cancelled():
            self._transport.abort()
            return
        error = durable.exception()
        if error is None:
            self._send(accepted, started, body)
        elif isinstance(error, Exception):
            self._send_problem(accepted, started, error)
        if self._finishing:
            self._end()
        elif not (self._writing_paused or self._transport.is_closing()):
            self._go_on()

    def _end(self) -> None:
        """Close after the last answer."""
        self._close_transport()
        self._owner.request_ended()

    def _close_transport(self) -> None:
        # After a second close, other calls of asyncio's TLS transport raise AttributeError.
        if not self._transport.is_closing():
            self._transport.close()

    def _send(self, accepted: Accepted, started: float, body: bytes) -> None:
        self._write(self._lane.encode(body))
        self._lane.record(accepted, self._client(accepted), time.perf_counter() - started)

    def _send_problem(self, accepted: Accepted, started: float, error: Exception) -> None:
        """Answer with an error. aiohttp must not repeat the request: it may have had its effect."""
        lane = self._lane
        problem = lane.errors.problem(error, path=accepted.path)
        self._write(lane.encode_problem(problem))
        lane.record(accepted, self._client(accepted), time.perf_counter() - started, problem)

    def _client(self, accepted: Accepted) -> Peer:
        """Return whom a request is from: a proxy's connection may carry those of many clients."""
        if not self._is_of_proxy or accepted.client is None:
            return self._peer
        return self._peer._replace(address=accepted.client)

    def _write(self, response: bytes) -> None:
        """Send a response, unless its client has left: the request counts all the same."""
        if not self._transport.is_closing():
            self._transport.write(response)
        self._last_activity = self._loop.time()
        self._owner.answered_at_once()

    def _go_on(self) -> None:
        self._transport.resume_reading()
        if self._rest:
            self._answer_all(self._take_rest())

    def _take_rest(self) -> bytes:
        rest, self._rest, self._needed = bytes(self._rest), bytearray(), 0
        return rest

    def _keep_partial_head(self, rest: bytes) -> None:
        if len(rest) < LANE_MAX_HEAD_BYTES and self._lane.may_begin(rest):
            self._keep_partial(rest, needed=0)
        else:
            self._leave(rest)

    def _keep_partial(self, rest: bytes, *, needed: int) -> None:
        self._keep(rest)
        self._needed = needed
        if self._partial_timer is None:
            self._partial_since = self._loop.time()
            self._partial_timer = self._loop.call_later(
                WHOLE_REQUEST_SECONDS, lambda: self._leave(self._take_rest())
            )

    def _keep(self, data: bytes) -> None:
        """Keep what cannot be answered yet."""
        self._rest += data
        self._is_holding = True
        self._owner.hold(len(self._rest))

    def _stop_partial_timer(self) -> None:
        if self._partial_timer is not None:
            self._partial_timer.cancel()
            self._partial_timer = None

    def _leave(self, unanswered: bytes) -> None:
        since = self._loop.time() if self._partial_timer is None else self._partial_since
        self.close()
        self._transport.resume_reading()
        self._owner.hand_over(unanswered, since)

    def _check_idle(self) -> None:
        left = self._last_activity + self._idle_seconds - self._loop.time()
        if self.is_waiting or self._writing_paused:
            left = self._idle_seconds
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._check_idle)
        else:
            self._close_transport()


def _peer(transport: asyncio.Transport) -> Peer:
    """Return the client of a connection. Its certificate is read here, once."""
    peername = transport.get_extra_info("peername")
    address = str(peername[0]) if isinstance(peername, tuple) else "-"
    certificate = transport.get_extra_info("peercert")
    return Peer(address, names_in(certificate) if certificate else None)
