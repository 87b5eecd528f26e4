"""Answers to plain requests as soon as they are parsed, or as soon as one thing waited for is done.

Measured, aiohttp's two tasks, its request and its response take two thirds of the time of a small
request. What is asked all the time is answered here without them; whatever is odd, wrong or fails
is not: it takes the ordinary way, where every error has its answer.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp import HttpVersion11
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDictProxy
from structlog.typing import FilteringBoundLogger

from httpd.access_log import logs_every_request
from httpd.auth import Caller, Keyring
from httpd.bodies import SERVER
from httpd.durations import Durations
from httpd.metrics import RequestMetrics

# Nothing here needs unquoting or normalising, so that the router would find the same.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    f"Content-Length: %d\r\nDate: %b\r\nServer: {SERVER}\r\n%b\r\n%b"
).encode()

# These make any request one for the ordinary way.
DECLINED = ("Expect", "Content-Encoding")


class Question(NamedTuple):
    """A request: who asks from which address, the path's parameter, the headers, all the body."""

    caller: Caller
    address: str
    name: str
    headers: CIMultiDictProxy[str]
    body: bytes


class Reply(NamedTuple):
    """JSON to be answered with 200, and what headers it needs besides: whole lines.

    It is given once `after` is done, which gives the body where there is none yet. Where `after`
    fails, the ordinary way tells the client and the log of its error.
    """

    body: bytes | None = None
    headers: bytes = b""
    after: asyncio.Future[Any] | None = None


class Answer(NamedTuple):
    """A reply, and what is counted of it: since when, and where."""

    reply: Reply
    started: float
    durations: Durations


# None is for what cannot be answered at once, or not with 200.
Handler = Callable[[Question], Reply | None]


class Line(NamedTuple):
    """What is done with the requests of one route."""

    handler: Handler
    durations: Durations
    declined: tuple[str, ...]


class Instant:
    """Answers plain requests of some routes, each of which ends in its one parameter.

    ``routes`` are method, path and handler, such as ``("POST", "/nodes/{hostname}", f)``.
    ``declined`` are the headers that make a request one for the ordinary way.
    """

    def __init__(
        self,
        routes: Iterable[tuple[str, str, Handler]],
        *,
        declined: Mapping[str, Iterable[str]],
        keyring: Keyring,
        metrics: RequestMetrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._keyring = keyring
        self._log = log
        self._lines: dict[tuple[str, str], Line] = {}
        self._second = 0
        self._date = b""
        if logs_every_request(log):  # each request has its line in the log then
            return
        for method, path, handler in routes:
            durations = metrics.series(path, method, HTTPStatus.OK)
            line = Line(handler, durations, (*DECLINED, *declined[method]))
            self._lines[method, path.rpartition("{")[0]] = line

    def wants(self, message: RawRequestMessage) -> Line | None:
        """Give the line of a request that may be answered here, once all of it is there."""
        method, path = message.method, message.path
        slash = path.rfind("/") + 1
        line = self._lines.get((method, path[:slash]))
        if (
            line is None
            or not _PLAIN.fullmatch(path, slash)
            or message.should_close
            or message.chunked
            or message.upgrade
            or message.version != HttpVersion11
            or not message.headers.keys().isdisjoint(line.declined)
        ):
            return None
        return line

    def answer(
        self, line: Line, message: RawRequestMessage, body: bytes, address: str
    ) -> Answer | None:
        """Give the answer, or None for a request that takes the ordinary way."""
        started = time.perf_counter()
        headers = message.headers
        authorization = headers.get("Authorization")
        caller = self._keyring.find(authorization) if authorization else None
        if caller is None:
            return None
        name = message.path.rpartition("/")[2]
        try:
            reply = line.handler(Question(caller, address, name, headers, body))
        except Exception as error:
            self._log.error("defect", path=message.path[:512], exc_info=error)
            return None
        return Answer(reply, started, line.durations) if reply is not None else None

    def encode(self, answer: Answer) -> bytes:
        """Give all that is to be sent, now."""
        body, headers, after = answer.reply
        if body is None:
            assert after is not None
            body = after.result()
        answer.durations.observe(time.perf_counter() - answer.started)
        return _HEAD % (len(body), self._now(), headers, body)

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date
