"""Servers and connections of a test's event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


async def close_server(server: asyncio.Server) -> None:
    """Close a server after the connections that it is accepting at present are made.

    asyncio never closes a connection that is made after its server was closed.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    await asyncio.sleep(0)
    server.close()


@asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end, and wait until all is sent; an error drops what is not sent.

    A connection that outlives its event loop warns when its memory is freed: in another test.
    """
    try:
        yield
        writer.close()
        await writer.wait_closed()
    finally:
        writer.transport.abort()
