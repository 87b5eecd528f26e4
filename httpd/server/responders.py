"""What answers requests: aiohttp, the lane, and fixed refusals before either."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from aiohttp import web

from httpd.middleware import identity_headers
from httpd.server.framing import (
    MAX_HEAD_BYTES,
    MAX_HEAD_FIELDS,
    HeadRefused,
    HeadTooLarge,
    OtherVersion,
    RequestLineTooLong,
    TooManyFields,
)
from httpd.server.lane.lane import Lane
from httpd.server.limits import UnfinishedRequests

READ_BUFFER_BYTES = 64 * 1024
NO_HEADERS: Mapping[str, str] = {}

TOO_MANY_CONNECTIONS = HTTPStatus.SERVICE_UNAVAILABLE, b"too many connections"
RETRY_AFTER = {"Retry-After": "5"}
REFUSED_HEADS: Mapping[type[HeadRefused], tuple[HTTPStatus, bytes]] = {
    HeadTooLarge: (
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        b"the request line and headers are larger than the limit of %d bytes; send shorter or"
        b" fewer headers, or a shorter query" % MAX_HEAD_BYTES,
    ),
    RequestLineTooLong: (
        HTTPStatus.REQUEST_URI_TOO_LONG,
        b"the request line is longer than the limit of %d bytes, which holds for it and the"
        b" headers together; send a shorter query" % MAX_HEAD_BYTES,
    ),
    OtherVersion: (
        HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
        b"this service speaks HTTP/1.1, and not HTTP/2; configure the client or the proxy for it",
    ),
    TooManyFields: (
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        b"there are more headers than the limit of %d; send fewer" % MAX_HEAD_FIELDS,
    ),
}


class Responders:
    """What answers the requests of a listener's connections: aiohttp, and the lane if there is one.

    All connections are read through one buffer: what is read is copied before the next read.
    """

    def __init__(
        self, *, daemon: str, make_handler: Callable[[], web.RequestHandler], lane: Lane | None
    ) -> None:
        self._daemon = daemon
        self.make_handler = make_handler
        self.lane = lane
        self.unfinished = UnfinishedRequests()
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))

    def refusal(
        self, status: HTTPStatus, text: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> bytes:
        """Return a whole response with a Message, which needs no escapes."""
        body = b'{"message":"%b"}' % text
        fields = {
            "Content-Type": "application/json",
            **headers,
            **identity_headers(self._daemon),
            "Connection": "close",
            "Content-Length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode() + body
