"""A small daemon in the shell, on a real port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web
from structlog.typing import Processor

from httpd.app import build_app
from httpd.auth import Caller, Keyring, fingerprint
from httpd.bodies import (
    BodyLimits,
    decode,
    json_response,
    query,
    receive_body,
    request_body,
)
from httpd.metrics import RequestMetrics, new_metrics
from httpd.pages import Pages
from httpd.server.limits import Timeouts
from httpd.server.listener import DEFAULT_TIMEOUTS, serving
from httpd.server.tls import ServerTls
from httpd.server.write_buffers import relaxed_write_buffers
from httpd.systemd.service import SystemdSockets

READER = "reader-key-0123456789"
WRITER = "writer-key-0123456789"
KEYS = [
    (fingerprint(READER), Caller("reader", frozenset({"read"}))),
    (fingerprint(WRITER), Caller("writer", frozenset({"read", "write"}))),
]
SWAGGER = "swagger: '2.0'\ninfo: {title: t, version: '1'}\npaths: {}\n"


class SampleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A body."""

    port: int
    tags: dict[str, str]


class SampleNotFound(Exception):
    """Is in the table."""


class SampleConflict(Exception):
    """Tells the client more than the log."""

    reason = "it did not start"


class SampleUnavailable(Exception):
    """Is in the table as 503."""

    retry_after_seconds = 17


class SampleApi:
    """Echoes what it understood; shows when an answer of a given size was begun."""

    def __init__(self) -> None:
        self.sized_begun = asyncio.Event()
        self._decoder = msgspec.json.Decoder(SampleBody)
        self.slow_requests = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/things/{name}", self.show),
            web.post("/things", self.add),
            web.get("/broken/{how}", self.fail),
            web.get("/slow", self.slow),
            web.post("/slow", self.collect),
            web.get("/large", self.large),
            web.get("/pieces", self.pieces),
            web.get("/sized/{bytes}", self.sized),
            web.get("/slow/begun", self.begun),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return json_response({"name": request.match_info["name"], "q": dict(query(request, {"q"}))})

    async def add(self, request: web.Request) -> web.Response:
        return json_response(decode(request_body(request), self._decoder), status=201)

    async def slow(self, _request: web.Request) -> web.Response:
        self.slow_requests += 1
        await asyncio.sleep(0.2)
        return json_response("done")

    async def collect(self, request: web.Request) -> web.Response:
        self.slow_requests += 1
        await receive_body(request, limit=1000, seconds=10)
        return json_response(len(request_body(request)))

    async def large(self, _request: web.Request) -> web.Response:
        return json_response("x" * 50_000_000)

    async def sized(self, request: web.Request) -> web.Response:
        transport = request.transport
        assert transport is not None
        # The kernel is to take little of it, or the client need not take any.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.sized_begun.set()
        return web.Response(body=b"x" * int(request.match_info["bytes"]))

    async def pieces(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        with relaxed_write_buffers(request):
            await response.prepare(request)
            for _ in range(50):
                await response.write(b"x" * 1_000_000)
        return response

    async def begun(self, _request: web.Request) -> web.Response:
        return json_response(self.slow_requests)

    async def fail(self, request: web.Request) -> web.Response:
        errors: dict[str, Exception] = {
            "gone": SampleNotFound("there is no such thing"),
            "away": SampleUnavailable("the store is away"),
            "wordy": SampleConflict("it did not start; it wrote: TOPSECRET"),
        }
        raise errors.get(request.match_info["how"], RuntimeError("with the secret in it"))


@asynccontextmanager
async def sample_server(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    shared: bool = False,
    log_processors: list[Processor] | None = None,
    tls: ServerTls | None = None,
    max_connections: int = 100,
    drain_seconds: float = 5.0,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    api: SampleApi | None = None,
    systemd: SystemdSockets | None = None,
    pages: Pages | None = None,
    keyring: Keyring | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Run it while the context is open; yield host and port."""
    metrics = new_metrics()
    request_metrics = RequestMetrics(metrics)
    log = structlog.wrap_logger(
        structlog.PrintLogger(),
        processors=log_processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    app = build_app(
        daemon="sample",
        routes=(api or SampleApi()).routes(),
        keyring=keyring or Keyring(KEYS),
        status_by_error={SampleNotFound: 404, SampleUnavailable: 503, SampleConflict: 409},
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=SWAGGER,
        body_limits=BodyLimits({("POST", "/things"): 1000, ("POST", "/slow"): None}, seconds=0.2),
        log=log,
        pages=pages,
    )
    async with serving(
        app,
        tls=tls,
        metrics=request_metrics,
        max_connections=max_connections,
        drain_seconds=drain_seconds,
        timeouts=timeouts,
        systemd=systemd,
        log=log,
    ) as listener:
        address = await listener.start((host, port), shared=shared)
        yield address


async def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send the bytes as they are and read until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
