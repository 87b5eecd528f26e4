"""A proxy before the engine that records requests and open connections."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.servers import close_server, closing

REQUEST = re.compile(rb"(?:^|\r\n)([A-Z]+) /v[0-9.]+([^ ?]*)[^\r\n]* HTTP/1\.1\r\n")
CHUNK = 65_536


class RecordingProxy:
    """Passes bytes on between the agent and a real engine.

    ``asked`` holds each request: ``METHOD /path``, without a version and a query.
    ``before_request`` is called with each of them before the engine gets it. With ``recording``,
    ``sent`` has all that each connection has sent.
    """

    def __init__(self, url: str, folder: str) -> None:
        self.path = str(Path(folder, "socket"))
        self.url = f"unix://{self.path}"
        self.asked: list[str] = []
        self.recording = False
        self.sent: list[bytearray] = []
        self.before_request: Callable[[str], None] = lambda _: None
        self._real = url.removeprefix("unix://")
        self._latest: dict[asyncio.Task[None], str] = {}

    def open(self, word: str) -> int:
        """Count the open connections whose latest question has the word in it."""
        return sum(word in question for question in self._latest.values())

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        try:
            with suppress(ConnectionError):
                async with closing(writer):
                    await self._pass_on(task, reader, writer)
        finally:
            self._latest.pop(task, None)

    async def _pass_on(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        real_reader, real_writer = await asyncio.open_unix_connection(self._real)
        back = asyncio.create_task(_copy(real_reader, writer))
        sent = bytearray()
        if self.recording:
            self.sent.append(sent)
        try:
            async with closing(real_writer):
                while chunk := await reader.read(CHUNK):
                    for method, path in REQUEST.findall(chunk):
                        self._latest[task] = f"{method.decode()} {path.decode()}"
                        self.asked.append(self._latest[task])
                        self.before_request(self._latest[task])
                    if self.recording:
                        sent += chunk
                    real_writer.write(chunk)
                    await real_writer.drain()
                if real_writer.can_write_eof():
                    real_writer.write_eof()
                    await back
        finally:
            back.cancel()

    async def end(self) -> None:
        """End the connections that are open."""
        for task in list(self._latest):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def recording_proxy(url: str) -> AsyncIterator[RecordingProxy]:
    """Run a proxy to the engine at an address."""
    with TemporaryDirectory() as folder:  # pytest's own is too long a path for a socket
        proxy = RecordingProxy(url, folder)
        server = await asyncio.start_unix_server(proxy.pass_on, proxy.path)
        try:
            yield proxy
        finally:
            await close_server(server)
            await proxy.end()
