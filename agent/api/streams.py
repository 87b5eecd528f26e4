"""A log on its way to a reader, who may be slow, or gone."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from agent.engine.protocol import EngineError, TooManyStreams
from httpd.auth import caller
from httpd.bodies import SERVER

POLL_SECONDS = 1.0
MAX_STREAMS_PER_KEY = 16
HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Server": SERVER,
}


class LogStreams:
    """Sends logs; at most a few chunks wait for a slow reader, then the engine has to wait."""

    def __init__(self) -> None:
        self._closing = False
        self._readers: Counter[str] = Counter()

    def close(self) -> None:
        """Let all streams end soon."""
        self._closing = True

    async def send(self, request: web.Request, chunks: AsyncGenerator[bytes]) -> web.StreamResponse:
        """Send the chunks as they come, until there are no more or nobody reads.

        Raises:
            TooManyStreams: with this key so many are read already that others would find no room.
            EngineError: the log cannot be had, and nothing was sent yet.

        """
        name = caller(request).name
        if self._readers[name] >= MAX_STREAMS_PER_KEY:
            raise TooManyStreams(
                f"key `{name}` reads {MAX_STREAMS_PER_KEY} logs already; end one of these"
            )
        self._readers[name] += 1
        response = web.StreamResponse(headers=HEADERS)
        try:
            async with aclosing(chunks):
                with suppress(ConnectionError):  # who leaves is no error
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
                # The first look may end in an error, which needs a status of its own.
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
        return None  # the engine went away in the middle; what was sent is all there is


async def _next_chunk(chunks: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
