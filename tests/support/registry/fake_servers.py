"""Servers that take the place of a registry, and behave badly."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from typing import Protocol

from aiohttp import web

from tests.support.servers import close_server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Server = AbstractAsyncContextManager[str]
ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpServer(Protocol):
    """The type of the fixture ``http_server``."""

    async def __call__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        daemon: str | None = "registry",
    ) -> str:
        """Serve every path with one handler, on 127.0.0.1; return the URL.

        Its answers have the header of a daemon; with None, they are those of another server.
        """


def one_handler_app(handler: Handler, *, daemon: str | None = None) -> web.Application:
    """Return an application that serves every path with one handler, as a daemon if it is named."""
    app = web.Application(client_max_size=4 * 1024 * 1024)
    if daemon is not None:
        app.on_response_prepare.append(partial(identify, daemon))
    app.router.add_route("*", "/{path:.*}", handler)
    return app


@asynccontextmanager
async def server_of_daemons(
    handler: Handler, *, tls: ssl.SSLContext | None = None, daemon: str | None = "registry"
) -> AsyncIterator[str]:
    """Serve every path with one handler, on 127.0.0.1; yield the URL.

    It is for daemons in a test that has no event loop. They may connect while it closes, which the
    server of the fixture ``http_server`` does not allow for.
    """
    app = one_handler_app(handler, daemon=daemon)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await close_server(server)
        await runner.cleanup()


async def identify(daemon: str, _request: web.Request, response: web.StreamResponse) -> None:
    """Say in an answer that it is a daemon's: for what aiohttp calls before it sends one."""
    response.headers["Rollcall"] = daemon


@asynccontextmanager
async def tcp_server(talk: ConnectionHandler) -> AsyncIterator[str]:
    """Accept connections on 127.0.0.1 and handle each by the function; yield the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio's streams would tell of a cancelled talk, or of a caller who left, as of an error.
        with suppress(asyncio.CancelledError, EOFError, ConnectionError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await close_server(server)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Read one request, its body too."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read, and never answer."""
    await reader.read()


@contextmanager
def running_servers(servers: Sequence[Server]) -> Iterator[list[str]]:
    """Run servers in a thread of their own; yield their URLs."""
    started: Future[tuple[list[str], asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(server) for server in servers]
            started.set_result((urls, stop, asyncio.get_running_loop()))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    urls, stop, loop = started.result(30)
    try:
        yield urls
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
