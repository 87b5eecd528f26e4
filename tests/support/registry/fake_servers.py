"""Registries that are not as they should be."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def http_server(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve every path with one handler, on 127.0.0.1; yield the URL."""
    app = web.Application(client_max_size=4 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def tcp_server(talk: ConnectionHandler) -> AsyncIterator[str]:
    """Accept connections on 127.0.0.1 and do as told with each; yield the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio's streams would tell of a cancelled talk, or of a caller who left, as of an error.
        with suppress(asyncio.CancelledError, EOFError, ConnectionError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Read one request, its body too."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head
