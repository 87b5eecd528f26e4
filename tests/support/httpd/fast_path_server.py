"""A server some of whose answers are instant, and what asks it byte by byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web

from httpd.app import build_app
from httpd.auth import Caller, Keyring, fingerprint
from httpd.bodies import json_response, read_body
from httpd.instant import Instant, Question, Reply
from httpd.metrics import RequestMetrics, new_metrics
from httpd.server.limits import Timeouts
from httpd.server.listener import listening
from tests.support.httpd.sample_server import READER, SWAGGER, WRITER

Address = tuple[str, int]


class FastPathUnavailable(Exception):
    """What is needed is not there."""

    retry_after_seconds = 7


class FastPathApi:
    """The ordinary handler, and the instant one, which say who they are."""

    def __init__(self) -> None:
        self.ordinary_calls = 0
        self.later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parked = asyncio.Event()
        self.late = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/things/{name}", self.ordinary), web.post("/things/{name}", self.ordinary)]

    async def ordinary(self, request: web.Request) -> web.Response:
        self.ordinary_calls += 1
        if request.match_info["name"] == "late":
            self.late.set()
        body = await read_body(request)
        return json_response({"by": "ordinary", "body": body.decode()})

    def instant(self, question: Question) -> Reply | None:
        told = {"by": "instant", "body": question.body.decode()}
        if question.name == "broken":
            raise RuntimeError("a defect")
        if question.name == "later":
            self.parked.set()
            return Reply(msgspec.json.encode(told), after=self.later)
        if question.name.startswith("now"):
            return Reply(
                msgspec.json.encode(told), headers=b"X-Name: %b\r\n" % question.name.encode()
            )
        return None


@asynccontextmanager
async def fast_path_server(
    timeouts: Timeouts | None = None,
) -> AsyncIterator[tuple[FastPathApi, Address]]:
    """Run them while the context is open."""
    known, metrics = FastPathApi(), new_metrics()
    request_metrics = RequestMetrics(metrics)
    log = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger("info")
    )
    keyring = Keyring(
        [
            (fingerprint(READER), Caller("reader", frozenset({"read"}))),
            (fingerprint(WRITER), Caller("writer", frozenset({"read", "write"}))),
        ]
    )
    app = build_app(
        routes=known.routes(),
        keyring=keyring,
        statuses={FastPathUnavailable: 503},
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=SWAGGER,
        log=log,
    )
    instant = Instant(
        [(method, "/things/{name}", known.instant) for method in ("GET", "POST")],
        declined={"GET": ["If-None-Match"], "POST": []},
        keyring=keyring,
        metrics=request_metrics,
        log=log,
    )
    async with listening(
        app,
        address=("127.0.0.1", 0),
        tls=None,
        metrics=request_metrics,
        max_connections=100,
        drain_seconds=600.0,
        timeouts=timeouts or Timeouts(),
        instant=instant,
        log=log,
    ) as address:
        yield known, address


def request(path: str, *headers: str, body: str = "", key: str = WRITER, method: str = "") -> bytes:
    """Give a request's bytes."""
    method = method or ("POST" if body else "GET")
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", body]).encode()


async def one(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["Content-Length"]))
    return int(head[0].split()[1]), headers, body


async def by(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Read one answer, a 200; give who answered, and the body that it told of."""
    status, _, body = await one(reader)
    assert status == 200, body
    told = msgspec.json.decode(body)
    return told["by"], told["body"]


@asynccontextmanager
async def connected(
    address: Address,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect, and ask for something, after which the connection is at rest."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request("/things/ordinary"))
    assert await by(reader) == ("ordinary", "")
    try:
        yield reader, writer
    finally:
        writer.close()
