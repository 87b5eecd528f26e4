"""Ways to servers that can be cut: connections through them stand still."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from typing import Self

from tests.support.registry.nats.servers import NatsCluster
from tests.support.servers import close_server, closing

READ_BYTES = 65536
# With it, a client of HTTP knows that its request had no effect.
BAD_GATEWAY = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\n{}"
)


class Cable:
    """Passes bytes between a port of its own and a server; it runs in a thread of its own.

    With several servers it is a plain TCP load balancer: each connection goes to the next server
    that accepts it. If none does, `rejection` is the answer to what comes first.
    """

    def __init__(self, port: int, *to: int, rejection: bytes = b"") -> None:
        self.port = port
        self._count = len(to)
        self._turns = cycle(to)
        self._rejection = rejection
        self._loop = asyncio.new_event_loop()
        self._plugged = asyncio.Event()
        self._plugged.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listening = threading.Event()

    def cut(self) -> None:
        """Pass nothing any more."""
        self._loop.call_soon_threadsafe(self._plugged.clear)

    def mend(self) -> None:
        """Pass bytes again, also those that came meanwhile."""
        self._loop.call_soon_threadsafe(self._plugged.set)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, "127.0.0.1", self.port)
        )
        self._listening.set()
        self._loop.run_forever()
        self._loop.run_until_complete(close_server(server))
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            async with closing(writer):
                await self._plugged.wait()
                if (far := await self._connect()) is None:
                    await self._reject(reader, writer)
                    return
                async with closing(far[1]), asyncio.TaskGroup() as directions:
                    directions.create_task(self._pass(reader, far[1]))
                    directions.create_task(self._pass(far[0], writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in islice(self._turns, self._count):
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def _reject(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._rejection:
            await reader.read(READ_BYTES)
            writer.write(self._rejection)
            await writer.drain()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                await self._plugged.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class ServerCables:
    """The ways of one registry to all NATS servers, as a context manager."""

    def __init__(self, servers: NatsCluster, free_port: Callable[[], int]) -> None:
        self._cables = [Cable(free_port(), server.port) for server in servers.servers]
        self._closing = ExitStack()

    def url(self, bucket: str = "rollcall") -> str:
        """Return the URL of a bucket by these ways."""
        return f"nats://{','.join(f'127.0.0.1:{cable.port}' for cable in self._cables)}/{bucket}"

    def cut(self) -> None:
        """Cut the registry off."""
        for cable in self._cables:
            cable.cut()

    def mend(self) -> None:
        """Connect it again."""
        for cable in self._cables:
            cable.mend()

    def __enter__(self) -> Self:
        for cable in self._cables:
            self._closing.enter_context(cable)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
