"""Sends logs to clients, which may read slowly or disconnect."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from agent.engine.errors import EngineError, TooManyStreams
from httpd.auth import caller, cut_off_with_its_key

POLL_SECONDS = 1.0
MAX_STREAMS_PER_KEY = 16
HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",  # a proxy is to pass on each line at once
}


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
