"""A server that collects what is sent to it, keys among it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.servers import close_server

# The registry is at 127.0.0.1, which the context allows without TLS; the rogue is not.
ROGUE = "127.0.0.2"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRollcall: agent\r\n"
    b"Content-Length: 2\r\n\r\n[]"
)


@dataclass
class Collector:
    """A server that answers as an agent without apps, and keeps all that it is sent."""

    url: str = ""
    port: int = 0
    connections: int = 0
    received: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def collector(tls: ssl.SSLContext | None = None) -> AsyncIterator[Collector]:
    """Yield a collector, with TLS if a context is given."""
    found = Collector()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        with suppress(ConnectionError, ssl.SSLError):
            while piece := await reader.read(65_536):
                found.received += piece
                if b"\r\n\r\n" in piece:
                    writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(collect, ROGUE, 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    found.url = f"{'https' if tls else 'http'}://{ROGUE}:{found.port}"
    try:
        yield found
    finally:
        await close_server(server)
