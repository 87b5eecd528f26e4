"""Each client of a stream waits for its turn before it is sent more, so that others get theirs."""

import asyncio
from collections.abc import Iterable

import structlog
from aiohttp import web
from structlog.testing import LogCapture

from httpd.sse import EventStreams, Wakeups
from tests.support.httpd.sample_server import READER, SampleApi, sample_server
from tests.support.httpd.slow_client import slow_client
from tests.support.waiting import async_until

KEY = READER.encode()
# More than the kernel and the server keep for a client that takes nothing.
LARGE = b"data: %b\n\n" % (b"x" * 1_000_000)
LAST = b"data: last\n\n"


class NotedWakeups(Wakeups):
    """Wakes those that wait, and notes in a journal when one begins to."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__()
        self._journal = journal

    async def wait(self, seconds: float) -> bool:
        self._journal.append("waits for its turn")
        return await super().wait(seconds)


class ListCursor:
    """A place in a list of events; the journal notes when the next ones are taken."""

    def __init__(self, events: list[bytes], journal: list[str]) -> None:
        self._events = events
        self._journal = journal
        self._position = 0

    @property
    def id(self) -> bytes:
        return b"%d" % self._position

    def begin(self, last_id: str) -> bytes:
        assert last_id == ""
        return b""

    async def advance(self) -> Iterable[bytes] | None:
        events = self._events[self._position :]
        self._position += len(events)
        if events:
            self._journal.append(f"is sent {len(events)}")
        return events or None

    def taken(self) -> None:
        """There is nothing to note."""

    def is_at_end(self) -> bool:
        return self._position == len(self._events)

    def is_kept(self) -> bool:
        return True


class StreamApi(SampleApi):
    """Adds a stream of events to the sample."""

    def __init__(self, wakeups: Wakeups, cursor: ListCursor) -> None:
        super().__init__()
        log = structlog.wrap_logger(None, processors=[LogCapture()])
        self._streams = EventStreams(wakeups, log, places=10, max_connections=100)
        self._cursor = cursor

    def routes(self) -> list[web.RouteDef]:
        return [*super().routes(), web.get("/stream", self._stream)]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.respond(request, self._cursor)


async def test_a_client_waits_for_its_turn_also_after_a_write_that_stalled() -> None:
    journal, events, taken = list[str](), list[bytes](), bytearray()
    async with NotedWakeups(journal) as wakeups:
        api = StreamApi(wakeups, ListCursor(events, journal))
        async with sample_server(api=api) as address, slow_client(address, None) as client:
            await client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n\r\n" % KEY)
            await async_until(lambda: asyncio.sleep(0, journal == ["waits for its turn"]))
            events.append(LARGE)
            wakeups.notify()
            await async_until(lambda: asyncio.sleep(0, journal[-1] == "is sent 1"))
            events.append(LAST)
            wakeups.notify()

            while not taken.endswith(b"data: last\n\n\r\n"):
                taken += await client.take(1_000_000)
            wakeups.close()

    assert journal[:4] == ["waits for its turn", "is sent 1", "waits for its turn", "is sent 1"]
