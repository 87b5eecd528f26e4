"""A proxy between an agent and the Docker Engine that counts the logs being streamed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK_BYTES = 1 << 16


class EngineProxy:
    """Forwards connections to an engine; ``url`` is where it listens.

    ``log_streams`` is the number of open connections on which a log was requested.
    """

    def __init__(self, *, socket: Path, engine_url: str) -> None:
        self.url = f"unix://{socket}"
        self.log_streams = 0
        self._socket = socket
        self._engine = engine_url.removeprefix("unix://")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Forward while the context is open."""
        server = await asyncio.start_unix_server(self._serve, self._socket)
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_unix_connection(self._engine)
        requests = asyncio.create_task(self._forward_requests(reader, engine_writer))
        responses = asyncio.create_task(_forward(engine_reader, writer))
        await asyncio.wait([requests, responses], return_when=asyncio.FIRST_COMPLETED)
        for task in (requests, responses):
            task.cancel()
        for each in (writer, engine_writer):
            each.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        streams_log = False
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if b"/logs?" in chunk and not streams_log:
                    streams_log = True
                    self.log_streams += 1
                writer.write(chunk)
                await writer.drain()
        finally:
            self.log_streams -= streams_log


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
