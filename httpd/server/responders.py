"""What answers requests: aiohttp, the lane, and fixed refusals before either."""

from collections.abc import Callable

from aiohttp import web

from httpd.server.framing import MAX_HEAD_BYTES
from httpd.server.lane.lane import Lane
from httpd.server.limits import UnfinishedRequests

READ_BUFFER_BYTES = 64 * 1024

REFUSAL = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bServer: rollcall\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
)


def _refusal(status: bytes, text: bytes, headers: bytes = b"") -> bytes:
    body = b'{"message":"%b"}' % text
    return REFUSAL % (status, headers, len(body), body)


TOO_MANY_CONNECTIONS = _refusal(
    b"503 Service Unavailable", b"too many connections", b"Retry-After: 5\r\n"
)
HEAD_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"the request line and headers are larger than the limit of %d bytes" % MAX_HEAD_BYTES,
)


class Responders:
    """What answers the requests of a listener's connections: aiohttp, and the lane if there is one.

    All connections are read through one buffer: what is read is copied before the next read.
    """

    def __init__(
        self, *, make_handler: Callable[[], web.RequestHandler], lane: Lane | None
    ) -> None:
        self.make_handler = make_handler
        self.lane = lane
        self.unfinished = UnfinishedRequests()
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))
