"""Server-sent events, sent to each client as far as it takes them."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, Self

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.auth import caller, cut_off_with_its_key
from httpd.places import Places
from httpd.server.write_buffers import bounded_buffers
from runtime.periodic import PeriodicTask
from runtime.turns import share

WOKEN_AT_ONCE = 16
# A task is woken at most once in this time, which grows with the number of waiting tasks.
MIN_INTERVAL_SECONDS = 0.02
INTERVAL_SECONDS_PER_WAITER = 0.0005
COMMENT_SECONDS = 15.0
SWEEP_SECONDS = 1.0
BUFFERED_BYTES = 32 * 1024
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy is to pass on each event at once
}


class Wakeups:
    """Wakes all tasks that wait when there is something new. To wake one takes some 0.1 ms.

    So tasks are woken in groups, between which the loop serves others, and once for several news in
    short succession. It works while it is open.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._news = asyncio.Event()
        self.is_closed = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def close(self) -> None:
        """Wake all tasks that wait; from now on none waits."""
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def notify(self) -> None:
        """Record that there is something new."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something new, at most so long; return whether there is."""
        if self.is_closed:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting.pop(future, None)

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            waiting = list(self._waiting)
            for start in range(0, len(waiting), WOKEN_AT_ONCE):
                for future in waiting[start : start + WOKEN_AT_ONCE]:
                    if not future.done():
                        future.set_result(None)
                await asyncio.sleep(0)
            pause = INTERVAL_SECONDS_PER_WAITER * len(waiting)
            await asyncio.sleep(max(MIN_INTERVAL_SECONDS, pause))


class StreamBroken(Exception):
    """A stream cannot go on: what comes next is no longer kept, or cannot be had."""


class Cursor(Protocol):
    """The place that one client has reached in the events, and what it is sent next."""

    @property
    def id(self) -> bytes:
        """The id of the place."""

    def begin(self, last_id: str) -> bytes:
        """Go to the place with the id; return what is sent first, nothing if it goes on there."""

    async def advance(self) -> Iterable[bytes] | None:
        """Return the next events in pieces, None if there are none for this client; StreamBroken.

        They are events up to the place, which is a later one then.
        """

    def taken(self) -> None:
        """Record that the client has taken all that was returned."""

    def is_at_end(self) -> bool:
        """Return whether there is nothing after the place."""

    def is_kept(self) -> bool:
        """Return whether all that the client has not taken yet is kept."""


@dataclass(eq=False)
class _Client:
    request: web.Request
    cursor: Cursor
    task: asyncio.Task[object] | None


class EventStreams:
    """The clients that are sent events. Code that adds events notifies ``wakeups``.

    There are so many ``places`` for clients, of which one key gets its share at most, so that a
    key which may only read does not keep an operator out. They leave a part of the connections to
    requests that end.
    """

    def __init__(
        self, wakeups: Wakeups, log: FilteringBoundLogger, *, places: int, max_connections: int
    ) -> None:
        self._wakeups = wakeups
        self._places = Places(min(places, share(max_connections)), "clients follow events")
        self._sweeping = PeriodicTask(interval=SWEEP_SECONDS, action=self._sweep, log=log)
        self._clients: set[_Client] = set()

    def __len__(self) -> int:
        return len(self._clients)

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Serve while the application runs: a context for its ``cleanup_ctx``."""
        async with self._wakeups, self._sweeping:
            yield

    async def close(self, _app: web.Application) -> None:
        """End all streams, as a shutdown waits for the responses: a hook for ``on_shutdown``."""
        self._wakeups.close()

    async def _sweep(self) -> None:
        """Cut off clients that fell behind, and forget those that left.

        A handler that waits for events does not notice that its client has left. A client that is
        still being sent what is no longer kept would hold it in memory for as long as it likes.
        """
        for client in list(self._clients):
            transport = client.request.transport
            if transport is None:
                if client.task is not None:
                    client.task.cancel()
            elif not client.cursor.is_kept():
                transport.abort()

    async def respond(self, request: web.Request, cursor: Cursor) -> web.StreamResponse:
        """Answer 200 with events until the client leaves, its key is revoked or it breaks.

        Raises NoPlace.
        """
        response = web.StreamResponse(headers=HEADERS)
        with self._place(request, cursor), cut_off_with_its_key(request):
            try:
                with bounded_buffers(request, high=BUFFERED_BYTES):
                    await response.prepare(request)
                    if request.method != "HEAD":
                        await self._send(request, response, cursor)
                    await response.write_eof()
            except StreamBroken:
                if request.transport is not None:
                    request.transport.abort()
        return response

    @contextmanager
    def _place(self, request: web.Request, cursor: Cursor) -> Iterator[None]:
        """Take a place for a client while the context is open; raises NoPlace."""
        client = _Client(request, cursor, asyncio.current_task())
        with self._places.taken(caller(request).name):
            self._clients.add(client)
            try:
                yield
            finally:
                self._clients.discard(client)

    async def _send(
        self, request: web.Request, response: web.StreamResponse, cursor: Cursor
    ) -> None:
        first = cursor.begin(request.headers.get("Last-Event-ID", ""))
        if first:
            await response.write(first)
        silent_since = time.monotonic()
        while not self._wakeups.is_closed:
            pieces = await cursor.advance()
            was_last = cursor.is_at_end()
            for piece in pieces or ():
                await response.write(piece)
            cursor.taken()
            silent_seconds = time.monotonic() - silent_since
            if pieces is not None:
                silent_since = time.monotonic()
            elif silent_seconds >= COMMENT_SECONDS:
                # No event up to this id was for the client, which need not ask for them again.
                await response.write(b": \nid: %b\n\n" % cursor.id)
                silent_since = time.monotonic()
            if was_last:
                await self._wait(cursor, COMMENT_SECONDS - (time.monotonic() - silent_since))

    async def _wait(self, cursor: Cursor, seconds: float) -> None:
        """Wait until it is time to send events, together with other clients."""
        if not cursor.is_at_end():
            self._wakeups.notify()
        await self._wakeups.wait(seconds)
