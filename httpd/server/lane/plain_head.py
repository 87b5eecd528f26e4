"""Parses the heads of plain requests: those without headers that change their meaning."""

from typing import NamedTuple

import httptools

# Heads of heartbeats are small. A larger one is left to aiohttp.
LANE_MAX_HEAD_BYTES = 8190
MAX_HEAD_LINES = 128
# More digits than any length that is accepted; Python refuses to convert thousands of them.
MAX_LENGTH_DIGITS = 10
# Headers that change what a request means, or that aiohttp refuses.
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


class PlainHead(NamedTuple):
    """The length of the body in bytes, the headers Authorization and X-Forwarded-For."""

    content_length: int
    authorization: str
    forwarded_for: str


class _Events:
    """Collects what httptools finds in a head, by its callbacks."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.has_duplicates = False
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.has_duplicates = self.has_duplicates or name in self.headers
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        self.is_complete = True


def parse_plain_head(head: bytes) -> PlainHead | None:
    """Parse a head, with the empty line at its end; return None if it is not plain.

    A plain head is well-formed HTTP/1.1 with keep-alive, in ASCII, with each header once, among
    them Host, Authorization and Content-Length, and none that changes the request's meaning.
    """
    lines = head.count(b"\r\n")
    if lines > MAX_HEAD_LINES or head.count(b"\n") != lines or not head.isascii():
        return None
    events = _Events()
    parser = httptools.HttpRequestParser(events)
    try:
        parser.feed_data(head)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    headers = events.headers
    length = headers.get(b"content-length", b"")
    if (
        not events.is_complete
        or events.has_duplicates
        or not headers.keys().isdisjoint(SPECIAL_HEADERS)
        or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive"
        or not parser.should_keep_alive()
        or parser.get_http_version() != "1.1"
        or b"host" not in headers
        or b"authorization" not in headers
        or not length.isdigit()
        or len(length) > MAX_LENGTH_DIGITS
    ):
        return None
    return PlainHead(
        int(length),
        headers[b"authorization"].decode(),
        headers.get(b"x-forwarded-for", b"").decode(),
    )
