"""A connection that gives instant answers past aiohttp's tasks, and leaves all else to them."""

import asyncio
from functools import partial
from typing import Any, NamedTuple

from aiohttp import StreamReader, web
from aiohttp.http_parser import RawRequestMessage

from httpd.instant import Answer, Instant


class Failure(NamedTuple):
    """What the answer to a request waited for in vain, and since when it did."""

    error: BaseException
    started: float


class InstantConnection(web.RequestHandler):
    """aiohttp's connection, with somebody before it who may take a request from its queue.

    aiohttp's task sleeps on a future, its waiter, until there are requests. While somebody else
    answers them the waiter is parked here, so that nothing wakes the task; whatever is left in the
    queue does afterwards. Answers are given in the order of their requests either way.
    """

    def __init__(
        self,
        manager: web.Server,
        *,
        instant: Instant | None,
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._instant = instant
        self._parked: asyncio.Future[None] | None = None
        self._address = "-"
        self._answered = 0
        self._failure: Failure | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn who is there."""
        if transport.get_extra_info("peercert"):
            self._instant = None  # a request depends on more than its key
        peername = transport.get_extra_info("peername")
        if isinstance(peername, tuple):
            self._address = str(peername[0])
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, whoever has the queue."""
        waiter = self._unpark()
        if waiter is not None and waiter.done() and self._task_handler is not None:
            self._task_handler.cancel()  # it was woken up, and would look for a request
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and answer what can be answered at once."""
        waiter = self._waiter
        if self._instant is None or waiter is None or waiter.done():
            super().data_received(data)
            return
        self._waiter, self._parked = None, waiter
        super().data_received(data)
        self._answer_queued(self._instant)

    def take_failure(self) -> Failure | None:
        """Give what the answer to the present request waited for in vain, once."""
        failure, self._failure = self._failure, None
        return failure

    def _answer_queued(self, instant: Instant) -> None:
        """Answer what came as a whole, in its order, until one has to wait or is not for us."""
        while self._messages and not (self._paused or self._buffer_paused or self._reading_paused):
            request, payload = self._messages[0]
            if not isinstance(request, RawRequestMessage):  # it is an error
                break
            line = instant.wants(request)
            if line is None or not payload.is_eof() or payload.exception() is not None:
                break
            body = self._take_first(payload)
            answer = instant.answer(line, request, body, self._address)
            if answer is None:
                self._put_back(request, body)
                break
            if answer.reply.after is not None:
                answer.reply.after.add_done_callback(
                    partial(self._settled, instant, answer, request, body)
                )
                return
            self._send(instant, answer)
        self._go_on()

    def _take_first(self, payload: StreamReader) -> bytes:
        self._messages.popleft()
        if self._parser is not None:  # it parses no more than so many ahead
            self._parser.message_consumed()
        return payload.read_nowait()

    def _settled(
        self,
        instant: Instant,
        answer: Answer,
        request: RawRequestMessage,
        body: bytes,
        after: asyncio.Future[Any],
    ) -> None:
        """Send what had to wait, or let aiohttp have the request and its failure."""
        error = asyncio.CancelledError() if after.cancelled() else after.exception()
        if self.transport is None:
            return
        if error is not None:
            self._failure = Failure(error, answer.started)
            self._put_back(request, body)
            self._go_on()
            return
        self._send(instant, answer)
        if self._close or self._force_close:
            self._unpark()
            self.force_close()
        else:
            self._answer_queued(instant)

    def _send(self, instant: Instant, answer: Answer) -> None:
        if self.transport is not None:
            self.transport.write(instant.encode(answer))
            self._answered += 1
            self._keep_alive()

    def _keep_alive(self) -> None:
        close_time = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = close_time
        if self._keepalive_handle is None:  # the last one fired while an answer had to wait
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)

    def _put_back(self, request: RawRequestMessage, body: bytes) -> None:
        payload = StreamReader(self, self._read_bufsize, loop=self._loop)
        payload.feed_data(body)
        payload.feed_eof()
        self._messages.appendleft((request, payload))

    def _go_on(self) -> None:
        """Let aiohttp have what is left."""
        waiter = self._unpark()
        if self._messages and waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _unpark(self) -> asyncio.Future[None] | None:
        if self._parked is not None:
            self._waiter, self._parked = self._parked, None
        return self._waiter
