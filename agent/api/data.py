"""Sends the data of apps to clients as a tar, and receives it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from aiohttp import web

from agent.api import requests
from agent.apps.errors import DataBrokenOff, DataTooSlow
from agent.apps.service.apps import Apps
from httpd.auth import caller, cut_off_with_its_key
from httpd.bodies import send_continue
from httpd.errors import Forbidden
from httpd.places import Places

UPLOAD_IDLE_SECONDS = 30.0
POLL_SECONDS = 1.0
MAX_TRANSFERS = 16


class DataTransfers:
    """The data of apps on its way between the engine and clients.

    One piece at a time is held in memory: the faster side waits. ``idle_seconds`` is the
    longest time without a byte of what a client sends.
    """

    def __init__(self, apps: Apps, *, idle_seconds: float) -> None:
        self._apps = apps
        self._idle_seconds = idle_seconds
        self._places = Places(MAX_TRANSFERS, "transfers of data are under way")

    async def send(self, request: web.Request, name: str) -> web.StreamResponse:
        """Answer 200 and the tar. If that fails in the middle, the connection is cut off.

        Raises:
            Forbidden: the key may only read; the data may hold secrets.
            AppError, EngineError: the data cannot be read.
            NoPlace: as many transfers as there is room for are under way.

        """
        if "write" not in caller(request).allow:
            raise Forbidden("the data of an app may hold secrets: it needs a key that may write")
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/x-tar",
                "Content-Disposition": f'attachment; filename="{name}.tar"',
            }
        )
        pause = requests.pause(request)
        with self._places.taken(caller(request).name):
            async with self._apps.export(name, requests.requester(request), pause=pause) as chunks:
                copying = asyncio.create_task(_copy(request, response, chunks))
                try:
                    with cut_off_with_its_key(request):
                        while not copying.done() and not _is_disconnected(request):
                            await asyncio.wait({copying}, timeout=POLL_SECONDS)
                finally:
                    copying.cancel()
                    await asyncio.wait({copying})
        return _sent(request, response, copying)

    @contextmanager
    def receiving(self, request: web.Request) -> Iterator[AsyncGenerator[bytes]]:
        """Have a place for what a client sends; yield it. Raises NoPlace."""
        with self._places.taken(caller(request).name):
            yield self._body(request)

    async def _body(self, request: web.Request) -> AsyncGenerator[bytes]:
        """Yield the body of a request as it comes.

        Raises:
            DataTooSlow, DataBrokenOff: it did not come, or not to its end.

        """
        await send_continue(request)
        content = request.content
        try:
            with cut_off_with_its_key(request):
                while chunk := await self._next_chunk(request):
                    yield chunk
        except TimeoutError as error:
            raise DataTooSlow(
                f"no byte of the tar came for {self._idle_seconds:g} seconds; nothing has changed"
            ) from error
        except asyncio.CancelledError as error:
            if content.exception() is None:  # it is the operation that is cancelled
                raise
            raise DataBrokenOff("the agent stops; nothing has changed") from error
        except (web.PayloadAccessError, web.RequestPayloadError, ConnectionError) as error:
            raise DataBrokenOff("the tar is incomplete; nothing has changed") from error

    async def _next_chunk(self, request: web.Request) -> bytes:
        """Return the next bytes of a body; none at its end."""
        content, chunk = request.content, b""
        while not chunk and not content.at_eof():
            if request.transport is None:
                raise ConnectionResetError("the client has left")
            async with asyncio.timeout(self._idle_seconds):
                chunk = await content.readany()
        error = content.exception()
        if error is not None:  # it ended in the middle
            raise error
        return chunk


async def _copy(
    request: web.Request, response: web.StreamResponse, chunks: AsyncGenerator[bytes]
) -> None:
    async for chunk in chunks:
        if not response.prepared:  # an error before the first piece has its own status
            await response.prepare(request)
        await response.write(chunk)


def _sent(
    request: web.Request, response: web.StreamResponse, copying: asyncio.Task[None]
) -> web.StreamResponse:
    """Return the response; if the client lacks some of the tar, cut the connection off and raise.

    Otherwise the client would take what it has for the whole.
    """
    error = None if copying.cancelled() else copying.exception()
    if error is None or isinstance(error, ConnectionError):  # the client may have left
        return response
    if response.prepared and request.transport is not None:
        request.transport.abort()
    raise error


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
