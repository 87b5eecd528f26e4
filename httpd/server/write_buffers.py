"""How much of a response may wait to be sent."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from httpd.server.handshakes import RAW_TRANSPORT

# What the kernel may hold of a response, if its pieces are not larger. It doubles this.
SEND_BUFFER_BYTES = 64 * 1024


@contextmanager
def relaxed_write_buffers(request: web.Request, *, high: int | None = None) -> Iterator[None]:
    """While the context is open, let the next piece be made before the last one is all sent.

    Up to ``high`` bytes may wait to be sent, asyncio's default if None. A client that leaves in
    the middle ends it, which is no error.
    """
    layers = _layers(request.transport)
    before = [layer.get_write_buffer_limits() for layer in layers]
    for layer in layers:
        layer.set_write_buffer_limits(high=high)
    try:
        with suppress(ConnectionError):
            yield
    finally:
        if request.transport is not None:  # it is not lost
            for layer, (low, high_before) in zip(layers, before, strict=True):
                layer.set_write_buffer_limits(low=low, high=high_before)


@contextmanager
def bounded_buffers(request: web.Request, *, high: int) -> Iterator[None]:
    """While the context is open, bound what waits to be sent: here to ``high`` bytes, and below."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        kernel_bytes = max(SEND_BUFFER_BYTES, high)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, kernel_bytes)
    with relaxed_write_buffers(request, high=high):
        yield


def _layers(transport: asyncio.WriteTransport | None) -> list[asyncio.WriteTransport]:
    """Return a connection's transport, and the one below where that is TLS."""
    if transport is None:
        return []
    return list(dict.fromkeys([transport, transport.get_extra_info(RAW_TRANSPORT, transport)]))
