"""A server with a lane, and what asks it byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.app import build_app
from httpd.auth import Caller, Keyring
from httpd.bodies import (
    BODY_TIMEOUT_SECONDS,
    BodyLimits,
    check_body_headers,
    json_response,
    receive_body,
    request_body,
)
from httpd.metrics import RequestMetrics, new_metrics
from httpd.server.lane import Endpoint, LaneResponse, Peer, Respond
from httpd.server.limits import Timeouts
from httpd.server.listener import serving
from httpd.server.tls import ServerTls
from tests.support.httpd.sample_server import KEYS, SWAGGER, WRITER

Address = tuple[str, int]


class Unavailable(Exception):
    """Is in the table as 503."""

    retry_after_seconds = 7


class LaneApi:
    """POST /things/{name}, answered by the lane and by a handler; answers say which it was.

    The lane's answer depends on the name: ``now``, ``later`` (once `later` is done), ``broken``
    (a defect), ``large`` (`large_bytes`, more than kernels keep); all other names are left to the
    handler.
    """

    path = "/things/{name}"
    max_body_bytes = 100_000
    large_bytes = 30_000_000

    def __init__(self) -> None:
        self.keyring = Keyring(KEYS)
        self.metrics = new_metrics()
        self.handler_calls = 0
        self.lane_bytes = 0
        self.accepted: list[str] = []
        self.later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_waiting = asyncio.Event()
        self.is_late = asyncio.Event()
        self.has_answered_large = asyncio.Event()

    def endpoint(self) -> Endpoint:
        return Endpoint(self.path, self.max_body_bytes, self.accept)

    def routes(self) -> list[web.RouteDef]:
        return [web.get(self.path, self.handle), web.post(self.path, self.handle)]

    async def handle(self, request: web.Request) -> web.Response:
        self.handler_calls += 1
        if request.match_info["name"] == "late":
            self.is_late.set()
        check_body_headers(request, self.max_body_bytes)
        await receive_body(request, limit=self.max_body_bytes, seconds=BODY_TIMEOUT_SECONDS)
        return json_response({"by": "handler", "body": request_body(request).decode()})

    def accept(self, name: str, caller: Caller) -> Respond | None:
        self.accepted.append(f"{name} {caller.name}")
        if "write" not in caller.allow:
            return None
        answers = {
            "now": self._now,
            "later": self._later,
            "broken": self._broken,
            "large": self._large,
        }
        return answers.get(name)

    def _now(self, _peer: Peer, body: bytes) -> LaneResponse:
        self.lane_bytes += len(body)
        return LaneResponse(msgspec.json.encode({"by": "lane", "body": body.decode()}))

    def _later(self, peer: Peer, body: bytes) -> LaneResponse:
        self.is_waiting.set()
        return self._now(peer, body)._replace(durable=self.later)

    def _large(self, _peer: Peer, _body: bytes) -> LaneResponse:
        self.has_answered_large.set()
        return LaneResponse(b"x" * self.large_bytes)

    def _broken(self, _peer: Peer, _body: bytes) -> LaneResponse:
        raise RuntimeError("with the secret in it")


def lane_app(
    api: LaneApi, request_metrics: RequestMetrics, log: FilteringBoundLogger
) -> web.Application:
    """Return the application behind the lane."""
    return build_app(
        daemon="sample",
        routes=api.routes(),
        keyring=api.keyring,
        body_limits=BodyLimits({("GET", api.path): None, ("POST", api.path): None}),
        status_by_error={Unavailable: 503},
        metrics=api.metrics,
        request_metrics=request_metrics,
        swagger=SWAGGER,
        log=log,
    )


@asynccontextmanager
async def lane_server(
    timeouts: Timeouts | None = None,
    *,
    tls: ServerTls | None = None,
    max_connections: int = 100,
    drain_seconds: float = 600.0,
    level: str = "info",
) -> AsyncIterator[tuple[LaneApi, Address]]:
    """Run it while the context is open."""
    api = LaneApi()
    log = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(level)
    )
    request_metrics = RequestMetrics(api.metrics)
    app = lane_app(api, request_metrics, log)
    async with serving(
        app,
        tls=tls,
        metrics=request_metrics,
        max_connections=max_connections,
        drain_seconds=drain_seconds,
        timeouts=timeouts or Timeouts(),
        lane=api.endpoint(),
        log=log,
    ) as listener:
        address = await listener.start(("127.0.0.1", 0))
        yield api, address


def request(name: str, *headers: str, body: str = "", key: str = WRITER) -> bytes:
    """Return the bytes of a plain request, or one with these headers besides."""
    lines = [
        f"POST /things/{name} HTTP/1.1",
        "Host: a",
        f"Authorization: Bearer {key}",
        *headers,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", body]).encode()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["Content-Length"]))
    return int(head[0].split()[1]), headers, body


async def answered_by(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Read one response, a 200; return who answered, and the body that it was asked with."""
    status, _, body = await read_response(reader)
    assert status == 200, body
    content = msgspec.json.decode(body)
    return content["by"], content["body"]


@asynccontextmanager
async def connected(
    address: Address, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Be connected while the context is open."""
    name = "localhost" if context else None
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=name)
    try:
        yield reader, writer
    finally:
        writer.close()


async def round_trip(address: Address, context: ssl.SSLContext | None = None) -> None:
    """Ask over a connection of its own, so that what arrived before has been read."""
    async with connected(address, context) as (reader, writer):
        writer.write(request("now"))
        assert await answered_by(reader) == ("lane", "")


async def until_alone(
    api: LaneApi, address: Address, context: ssl.SSLContext | None = None
) -> None:
    """Wait until nobody else is connected."""
    async with connected(address, context) as (reader, writer):
        while api.metrics.get_sample_value("rollcall_http_connections") != 1:
            writer.write(request("now"))
            assert await answered_by(reader) == ("lane", "")
