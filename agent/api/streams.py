"""Sends logs and events to clients, which may read slowly or disconnect."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

import msgspec
from aiohttp import web
from structlog.typing import FilteringBoundLogger

from agent.api.bounds import is_for, without_others
from agent.apps.records import EventView, event_view
from agent.apps.repository.events import EventFeed
from agent.engine.errors import EngineError, TooManyStreams
from agent.state.history import Event
from httpd import bodies
from httpd.auth import Caller, caller, cut_off_with_its_key
from httpd.sse import EventStreams, StreamBroken, Wakeups

POLL_SECONDS = 1.0
MAX_STREAMS_PER_KEY = 16
HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",  # a proxy is to pass on each line at once
}
EVENTS_PATH = "/v1/events"
MAX_READERS = 100
EVENTS_AT_ONCE = 100


class LogStreams:
    """Streams logs, at most MAX_STREAMS_PER_KEY at a time for each API key.

    One chunk at a time is held in memory: while a client reads slowly, the engine has to wait.
    """

    def __init__(self) -> None:
        self._closing = False
        self._readers: Counter[str] = Counter()

    def close(self) -> None:
        """Make all streams end within POLL_SECONDS."""
        self._closing = True

    async def send(self, request: web.Request, chunks: AsyncGenerator[bytes]) -> web.StreamResponse:
        """Answer 200 and send the chunks as they come, until they end or the client disconnects.

        If the engine fails in the middle, the response ends there.

        Raises:
            TooManyStreams: the caller's key has its maximum of streams.
            EngineError: the engine failed before anything was sent.

        """
        name = caller(request).name
        if self._readers[name] >= MAX_STREAMS_PER_KEY:
            raise TooManyStreams(
                f"key `{name}` reads {MAX_STREAMS_PER_KEY} logs already; end one of these"
            )
        self._readers[name] += 1
        response = web.StreamResponse(headers=HEADERS)
        try:
            # A client that disconnects is not an error.
            async with aclosing(chunks):
                with suppress(ConnectionError), cut_off_with_its_key(request):
                    await self._copy(request, response, chunks)
        finally:
            self._readers[name] -= 1
        return response

    async def _copy(
        self, request: web.Request, response: web.StreamResponse, chunks: AsyncGenerator[bytes]
    ) -> None:
        pending = asyncio.create_task(_next_chunk(chunks))
        try:
            while not self._closing and not _is_disconnected(request):
                # An error before the first chunk is answered with a status of its own.
                await asyncio.wait({pending}, timeout=POLL_SECONDS)
                chunk = _ready_chunk(pending, response)
                if not response.prepared:
                    await response.prepare(request)
                if chunk is None and pending.done():
                    return
                if chunk is not None:
                    await response.write(chunk)
                    pending = asyncio.create_task(_next_chunk(chunks))
        finally:
            pending.cancel()
            await asyncio.wait({pending})


def _ready_chunk(pending: asyncio.Task[bytes | None], response: web.StreamResponse) -> bytes | None:
    if not pending.done():
        return None
    try:
        return pending.result()
    except EngineError:
        if not response.prepared:
            raise
        return None  # the status is sent already: the response can only end here


async def _next_chunk(chunks: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


class EventsApi:
    """The handler of /v1/events, and the clients that follow it."""

    def __init__(self, feed: EventFeed, log: FilteringBoundLogger, *, max_connections: int) -> None:
        self._feed = feed
        self._wakeups = Wakeups()
        self._streams = EventStreams(
            self._wakeups, log, places=MAX_READERS, max_connections=max_connections
        )

    def attach(self, app: web.Application) -> None:
        """Add the route; the streams end at the shutdown."""
        self._feed.listeners.append(self._wakeups.notify)
        app.router.add_get(EVENTS_PATH, self.follow, allow_head=True)
        app.cleanup_ctx.append(self._streams.run)
        app.on_shutdown.append(self._streams.close)

    async def follow(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /v1/events with 200 and the events of all apps, from now on, without an end.

        A client that sends the header Last-Event-ID gets those after that event. If they are not
        all known, or it sends none, it gets `reset` first.
        """
        bodies.query(request, ())
        return await self._streams.respond(request, FeedCursor(self._feed, caller(request)))


class FeedCursor:
    """The position of one client in the events; it has taken all up to a number.

    It gets those of the apps that its key is for.
    """

    def __init__(self, feed: EventFeed, client: Caller) -> None:
        self._feed = feed
        self._client = client
        self._position = self._taken = feed.last

    @property
    def id(self) -> bytes:
        """The id of the position."""
        return self._feed.id_of(self._position).encode()

    def begin(self, last_id: str) -> bytes:
        """Go to the position of an id, or else to the end with a `reset`, which is returned."""
        position = self._feed.position_of(last_id)
        self._position = self._taken = self._feed.last if position is None else position
        return _event("reset", self.id, b"{}") if position is None else b""

    async def advance(self) -> Iterable[bytes] | None:
        """Return the next events, None if there are none; StreamBroken."""
        events = self._feed.after(self._position, EVENTS_AT_ONCE)
        if events is None:
            raise StreamBroken
        self._position += len(events)
        sent = [self._encoded(event) for event in events if is_for(self._client, event.app)]
        return [b"".join(sent)] if sent else None

    def _encoded(self, event: Event) -> bytes:
        shown = shown_event(self._client, event_view(event))
        return _event("app", event.id.encode(), msgspec.json.encode(shown))

    def taken(self) -> None:
        """Record that the client has taken the events up to the position."""
        self._taken = self._position

    def is_at_end(self) -> bool:
        """Return whether there is no other event."""
        return self._position == self._feed.last

    def is_kept(self) -> bool:
        """Return whether all events that the client has not taken are kept."""
        return self._taken >= self._feed.first


def shown_event(client: Caller, event: EventView) -> EventView:
    """Return an event as a key may see it."""
    if event.message is None:
        return event
    return msgspec.structs.replace(event, message=without_others(client, event.message))


def _event(kind: str, event_id: bytes, data: bytes) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, kind.encode(), data)
