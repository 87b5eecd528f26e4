"""A client that takes of its answer as much as a test says: nothing reads ahead in its name."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class SlowClient:
    """A connection with a small buffer; with a context, TLS that is done by hand."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(self._came, self._leaves, server_hostname="localhost")

    async def connect(self, address: tuple[str, int]) -> None:
        """Connect, and shake hands."""
        await self._loop.sock_connect(self._socket, address)
        while self._tls is not None:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                self._came.write(await self._loop.sock_recv(self._socket, 4096))
        await self._flush()

    async def send(self, data: bytes) -> None:
        """Send it all."""
        if self._tls is None:
            await self._loop.sock_sendall(self._socket, data)
        else:
            self._tls.write(data)
            await self._flush()

    async def send_until_cut_off(self, data: bytes) -> None:
        """Send it again and again, and take nothing."""
        with suppress(ConnectionError):
            while True:
                await self.send(data)

    async def take(self, most: int = 512) -> bytes:
        """Take some of what was sent here, as it is on the wire; b"" at its end."""
        try:
            return await self._loop.sock_recv(self._socket, most)
        except ConnectionError:
            return b""

    async def send_close_notify(self) -> None:
        """Send close_notify over TLS."""
        if self._tls is not None:
            with suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            await self._flush()

    def half_close(self) -> None:
        """End the connection for the server, without close_notify."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Leave without a word: the other side's next packet is rejected."""
        at_once = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._socket.close()

    async def _flush(self) -> None:
        await self._loop.sock_sendall(self._socket, self._leaves.read())


@asynccontextmanager
async def slow_client(
    address: tuple[str, int], context: ssl.SSLContext | None
) -> AsyncIterator[SlowClient]:
    """Be connected while the context is open."""
    client = SlowClient(context)
    try:
        await client.connect(address)
        yield client
    finally:
        client.reset()
