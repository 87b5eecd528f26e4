"""Answers the plain requests of one route without aiohttp.

aiohttp's two tasks, its request and its response take two thirds of the time of a small request.
The lane answers requests that never end, such as heartbeats, without them. It checks a request
before it acts: aiohttp gets the first one that is special or to be rejected, and the connection
with it, so that each rejection has one place.
"""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from hashlib import sha256
from typing import NamedTuple

import msgspec

from httpd.access_log import Answered
from httpd.auth import Caller
from httpd.clients import names_in
from httpd.errors import Problem
from httpd.middleware import Middleware, identity_headers
from httpd.server.requests import IncomingRequest, RequestRejected

# Only names that need no unquoting or normalising: the router would find the same path.
REQUEST_LINE = rb"POST %b([A-Za-z0-9_][A-Za-z0-9_.-]*) HTTP/1\.1\r\n"
# With its headers in the order in which aiohttp sends them.
RESPONSE = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\nDate: %b\r\n"
# Those that change what a request means, or that aiohttp rejects.
SPECIAL_HEADERS = frozenset(
    {
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"content-encoding",
        b"proxy-connection",
        b"sec-websocket-key1",
    }
)
NEEDED_HEADERS = frozenset({b"host", b"authorization", b"content-length"})
# More digits than any length that is accepted; Python does not convert thousands of them.
MAX_LENGTH_DIGITS = 10
OK = 200
OK_LINE = b"200 OK"


class Peer(NamedTuple):
    """A client: its address, and the names in the certificate that it has shown.

    The names are None where no certificate was asked for.
    """

    address: str
    names: frozenset[str] | None


class LaneResponse(NamedTuple):
    """The body of a 200.

    With ``durable`` it is sent once that is done; if that fails, its error is the response.
    """

    body: bytes
    durable: asyncio.Future[None] | None = None


# Runs a client's request with this body. None: nothing was done, aiohttp is to answer it.
Respond = Callable[[Peer, bytes], LaneResponse | None]


class Endpoint(NamedTuple):
    """The handler of a lane's one route: POST of a path that ends in its one parameter.

    Attributes:
        path: The route, such as ``/nodes/{hostname}``.
        max_body_bytes: How large a body may be.
        accept: Returns what runs a caller's requests for a name; None if it may not ask.

    """

    path: str
    max_body_bytes: int
    accept: Callable[[str, Caller], Respond | None]


class Accepted(NamedTuple):
    """A request, as far as its head describes it; ``client`` counts if a proxy has sent it."""

    respond: Respond
    content_length: int
    caller: Caller
    path: str
    client: str | None


class _Headers(NamedTuple):
    """What a request says behind its request line; ``client`` is the one that a proxy names."""

    content_length: int
    caller: Caller
    client: str | None


class Lane:
    """What the connections of a listener share: the route, the headers seen, the counters.

    A request line is taken in one form only, in which nothing but the name differs. Headers that
    were good before are not parsed again until the keys change, under any name: equal
    bytes mean the same. Whether the key is good for the name is looked up each time. Of the headers
    their SHA-256 is kept, not the bytes, which hold a key.
    """

    def __init__(self, endpoint: Endpoint, *, middleware: Middleware, max_headers: int) -> None:
        self.errors = middleware.errors
        self.proxies = middleware.access.proxies
        self._keyring = middleware.access.keyring
        self._keyring_version = self._keyring.version
        self._access_log = middleware.access_log
        self._endpoint = endpoint
        self._route = endpoint.path
        self._prefix = endpoint.path.rpartition("{")[0]
        self._match_line = re.compile(REQUEST_LINE % re.escape(self._prefix.encode())).match
        self._max_headers = max_headers
        self._headers: dict[bytes, _Headers] = {}
        identity = identity_headers(middleware.daemon).items()
        lines = "".join(f"{name}: {value}\r\n" for name, value in identity)
        self._response = RESPONSE + f"{lines}\r\n".encode() + b"%b"
        self._second = 0
        self._date = b""

    def accept(self, head: bytes) -> Accepted | None:
        """Return what a head says, with the empty line at its end; None if aiohttp is to judge."""
        line = self._match_line(head)
        if line is None:
            return None
        if self._keyring_version != self._keyring.version:
            self._headers.clear()
            self._keyring_version = self._keyring.version
        digest = sha256(head[line.end() :]).digest()
        headers = self._headers.get(digest) or self._add_headers(digest, head)
        if headers is None:
            return None
        content_length, caller, client = headers
        name = line[1].decode()
        respond = self._endpoint.accept(name, caller)
        if respond is None:
            return None
        return Accepted(respond, content_length, caller, self._prefix + name, client)

    def _add_headers(self, digest: bytes, head: bytes) -> _Headers | None:
        """Parse the headers of a head; remember them by their digest if they have a valid key."""
        headers = _plain_headers(head)
        if headers is None:
            return None
        size = int(headers[b"content-length"])
        caller = self._keyring.find(headers[b"authorization"].decode())
        if caller is None or size > self._endpoint.max_body_bytes:
            return None
        if len(self._headers) >= self._max_headers:
            self._headers.clear()  # rare, and quicker than to know which were used last
        client = self.proxies.client(headers.get(b"x-forwarded-for", b"").decode())
        self._headers[digest] = _Headers(size, caller, client)
        return self._headers[digest]

    def encode(self, body: bytes, status: bytes = OK_LINE, headers: bytes = b"") -> bytes:
        """Return a response's bytes; `status` is code and phrase, `headers` are whole lines."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._response % (status, headers, len(body), self._date, body)

    def encode_problem(self, problem: Problem) -> bytes:
        """Return the bytes of the response to a request that failed."""
        body = msgspec.json.encode({"message": problem.text})
        lines = [f"{name}: {value}\r\n" for name, value in problem.headers.items()]
        status = f"{problem.status:d} {problem.status.phrase}"
        return self.encode(body, status.encode(), "".join(lines).encode())

    def record(
        self, accepted: Accepted, peer: Peer, seconds: float, problem: Problem | None = None
    ) -> None:
        """Count an answered request, and write it to the access log if it belongs there."""
        if problem is None and not self._access_log.is_verbose:
            self._access_log.count(self._route, "POST", OK, seconds)
            return
        answered = Answered(
            route=self._route,
            method="POST",
            path=accepted.path,
            status=OK if problem is None else problem.status.value,
            caller=accepted.caller.name,
            remote=peer.address,
            quiet=True,
            reason=None if problem is None else problem.reason,
        )
        self._access_log.record(answered, seconds)


def _plain_headers(head: bytes) -> dict[bytes, bytes] | None:
    """Return the headers of a plain request, None if it is not.

    They are in ASCII, each once, among them Host, Authorization and Content-Length, and none
    changes what the request means.
    """
    request = IncomingRequest()
    try:
        request.take_head(bytearray(head))
    except RequestRejected:
        return None
    headers = {name.lower(): value for name, value in request.headers}
    is_plain = (
        len(headers) == len(request.headers)
        and head.isascii()
        and headers.keys().isdisjoint(SPECIAL_HEADERS)
        and headers.keys() >= NEEDED_HEADERS
        and headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
        and len(headers[b"content-length"]) <= MAX_LENGTH_DIGITS
    )
    return headers if is_plain else None


def peer_of(transport: asyncio.Transport) -> Peer:
    """Return the client of a connection, with the names in its certificate."""
    peername = transport.get_extra_info("peername")
    address = str(peername[0]) if isinstance(peername, tuple) else "-"
    certificate = transport.get_extra_info("peercert")
    return Peer(address, names_in(certificate) if certificate else None)
