"""The lane: answers the plain requests of one route without aiohttp.

aiohttp's two tasks, its request and its response take two thirds of the time of a small request.
The lane answers frequent requests, such as heartbeats, without them. It checks a request before it
changes anything: the first one that is special, incomplete or refused is passed to aiohttp, and the
connection with it, so refusals are implemented once.
"""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec

from httpd.access_log import Answered
from httpd.auth import Caller
from httpd.bodies import SERVER
from httpd.errors import Problem
from httpd.middleware import Middleware
from httpd.server.plain_head import parse_plain_head

# Such a name needs no unquoting or normalising, so the router would find the same.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# The headers are in the order in which aiohttp sends them.
RESPONSE = (
    f"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bServer: {SERVER}\r\n"
    "Content-Length: %d\r\nDate: %b\r\n\r\n%b"
).encode()
OK = 200
OK_LINE = b"200 OK"


class Client(NamedTuple):
    """The client of a connection: its address, and the names in its certificate.

    The names are None if no certificate is required.
    """

    address: str
    names: frozenset[str] | None


class Reply(NamedTuple):
    """The body of a 200, sent when ``durable`` is done; if that fails, its error is answered."""

    body: bytes
    durable: asyncio.Future[None] | None = None


# Answers a client's request with this body. None: nothing was changed, and aiohttp must answer.
Respond = Callable[[Client, bytes], Reply | None]


class Endpoint(Protocol):
    """The one route of a lane: POST of a path that ends in its one parameter."""

    @property
    def path(self) -> str:
        """The route, such as ``/nodes/{hostname}``."""

    @property
    def max_body_bytes(self) -> int:
        """The size limit of a body."""

    def accept(self, name: str, caller: Caller) -> Respond | None:
        """Return what answers this caller's requests for this name; None if it is not allowed."""


class Accepted(NamedTuple):
    """An accepted head: all that is needed to answer requests with it."""

    respond: Respond
    content_length: int
    caller: Caller
    path: str


class Lane:
    """What the connections of one listener share: the route, and the cache of accepted heads.

    A head that was accepted before is not parsed again until the keys change. The cache holds the
    SHA-256 of heads, because heads contain keys.
    """

    def __init__(self, endpoint: Endpoint, *, middleware: Middleware, max_heads: int) -> None:
        self.errors = middleware.errors
        self._keyring = middleware.keyring
        self._keyring_version = middleware.keyring.version
        self._recorder = middleware.recorder
        self._endpoint = endpoint
        self._route = endpoint.path
        self._prefix = endpoint.path.rpartition("{")[0]
        self._request_line = f"POST {self._prefix}".encode()
        self._max_heads = max_heads
        self._accepted: dict[bytes, Accepted] = {}
        self._second = 0
        self._date = b""

    def may_begin(self, data: bytes) -> bool:
        """Return whether this may be the beginning of a request for the route."""
        line = self._request_line
        return data.startswith(line) or line.startswith(data)

    def accept(self, head: bytes) -> Accepted | None:
        """Return an accepted head; None if aiohttp must handle the request."""
        if self._keyring_version != self._keyring.version:
            self._accepted.clear()
            self._keyring_version = self._keyring.version
        digest = sha256(head).digest()
        accepted = self._accepted.get(digest)
        if accepted is None:
            accepted = self._accept_new(head)
            if accepted is None:
                return None
            if len(self._accepted) >= self._max_heads:
                self._accepted.clear()  # rare, and cheaper than to track which were used last
            self._accepted[digest] = accepted
        return accepted

    def _accept_new(self, head: bytes) -> Accepted | None:
        parsed = parse_plain_head(head) if head.startswith(self._request_line) else None
        if parsed is None or parsed.content_length > self._endpoint.max_body_bytes:
            return None
        name = parsed.path[len(self._prefix) :]
        caller = self._keyring.find(parsed.authorization)
        if caller is None or PLAIN_NAME.fullmatch(name) is None:
            return None
        respond = self._endpoint.accept(name, caller)
        if respond is None:
            return None
        return Accepted(respond, parsed.content_length, caller, parsed.path)

    def encode(self, body: bytes, status: bytes = OK_LINE, headers: bytes = b"") -> bytes:
        """Return a response's bytes; `status` is code and phrase, `headers` are whole lines."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return RESPONSE % (status, headers, len(body), self._date, body)

    def encode_problem(self, problem: Problem) -> bytes:
        """Return the bytes of the response to a request that failed."""
        body = msgspec.json.encode({"message": problem.text})
        lines = [f"{name}: {value}\r\n" for name, value in problem.headers.items()]
        status = f"{problem.status:d} {problem.status.phrase}"
        return self.encode(body, status.encode(), "".join(lines).encode())

    def record(
        self, accepted: Accepted, client: Client, seconds: float, problem: Problem | None = None
    ) -> None:
        """Count an answered request, and write it to the access log."""
        if problem is None and not self._recorder.writes_quiet_requests:
            self._recorder.count(self._route, "POST", OK, seconds)
            return
        answered = Answered(
            route=self._route,
            method="POST",
            path=accepted.path,
            status=OK if problem is None else problem.status.value,
            caller=accepted.caller.name,
            remote=client.address,
            quiet=True,
            reason=None if problem is None else problem.reason,
        )
        self._recorder.record(answered, seconds)
