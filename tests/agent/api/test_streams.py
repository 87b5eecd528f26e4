"""LogStreams and a client that leaves, without an engine."""

import asyncio
import struct
from collections.abc import AsyncGenerator
from socket import SO_LINGER, SOL_SOCKET

import structlog
from aiohttp import web

from agent.api.streams import LogStreams
from httpd.app import build_app
from httpd.auth import Caller, Keyring, fingerprint
from httpd.metrics import RequestMetrics, new_metrics
from httpd.server.listener import serving
from tests.support.httpd.sample_server import SWAGGER
from tests.support.waiting import async_until

KEY = "reader-key-0123456789"
WRITE_BUFFER_BYTES = 1 << 16  # above this, asyncio makes writers wait
RESET = struct.pack("ii", 1, 0)


class Flood:
    """An endless log; ``ended`` is set when nobody takes it any more."""

    def __init__(self) -> None:
        self.streams = LogStreams()
        self.ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def is_blocked(self) -> bool:
        """Return whether more waits to be sent than a writer may go on with."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > WRITE_BUFFER_BYTES

    async def show(self, request: web.Request) -> web.StreamResponse:
        self._transport = request.transport
        return await self.streams.send(request, self._chunks())

    async def _chunks(self) -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x" * 1_000_000
        finally:
            self.ended.set()


async def test_a_slow_reader_that_resets_the_connection_is_no_error() -> None:
    flood, metrics = Flood(), new_metrics()
    request_metrics = RequestMetrics(metrics)
    app = build_app(
        daemon="sample",
        routes=[web.get("/flood", flood.show)],
        keyring=Keyring([(fingerprint(KEY), Caller("reader", frozenset({"read"})))]),
        status_by_error={},
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=SWAGGER,
        log=structlog.get_logger(),
    )
    async with serving(
        app,
        tls=None,
        metrics=request_metrics,
        max_connections=10,
        drain_seconds=5.0,
        log=structlog.get_logger(),
    ) as listener:
        address = await listener.start(("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(f"GET /flood HTTP/1.1\r\nHost: a\r\nAuthorization: {KEY}\r\n\r\n".encode())
        await reader.readexactly(1000)
        await async_until(flood.is_blocked)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, RESET)
        writer.close()
        await flood.ended.wait()
    answered = {
        sample.labels["status"]
        for family in metrics.collect()
        for sample in family.samples
        if sample.name.startswith("rollcall_http_request_duration_seconds_count")
    }
    assert answered == {"200"}
