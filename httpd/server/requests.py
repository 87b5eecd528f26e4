"""One request as it arrives: llhttp, behind httptools, finds where its head and its body end.

The head and the body are passed on as they came, so what answers the request parses the same bytes.
"""

import re
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus

import httptools

MAX_HEAD_BYTES = 16 * 1024
# Each costs a parser some microseconds, also for clients without a key.
MAX_HEAD_FIELDS = 128
MAX_TRAILERS = 100
MAX_CHUNK_LINE_BYTES = 1024
# Each chunk costs some microseconds, also for clients without a key: so small ones are limited.
MAX_SMALL_CHUNKS = 500
CHUNK_BYTES = 256
# What is parsed of a body in chunks before others are served.
PIECE_BYTES, MAX_PIECES = 4096, 256
LINE_BREAKS = b"\r\n"
# A head ends so, and so does a body in chunks: llhttp takes no line that ends otherwise.
EMPTY_LINE = b"\r\n\r\n"
BEGUN_EMPTY_LINES = (b"\r\n\r", b"\r\n", b"\r")
UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
# The beginning of HTTP/2, for which llhttp would wait for more.
PREFACE = b"PRI * HTTP/2.0\r\n"
MALFORMED = "this is no well-formed HTTP/1.1 request"
OTHER_VERSION = (
    "this service speaks HTTP/1.1, and not HTTP/2; configure the client or the proxy for it"
)
HEAD_TOO_LARGE = (
    f"the request line and headers are larger than the limit of {MAX_HEAD_BYTES} bytes;"
    " send shorter or fewer headers, or a shorter query"
)
LINE_TOO_LONG = (
    f"the request line is longer than the limit of {MAX_HEAD_BYTES} bytes, which holds for it and"
    " the headers together; send a shorter query"
)
TOO_MANY_FIELDS = f"there are more headers than the limit of {MAX_HEAD_FIELDS}; send fewer"


class RequestRejected(Exception):
    """A request is rejected before it is answered by a handler."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class IncomingRequest:
    """A request, of which first the head is taken from a client's bytes, then the body.

    Attributes:
        head: with the empty line at its end, and without the header Upgrade.
        headers: those of the head, as they came.
        is_complete: all of the request was taken.
        is_malformed: the end of the body cannot be found.

    """

    def __init__(self) -> None:
        self._begin()
        self.head = b""
        self._parsed = 0  # bytes of a head that is not complete

    def _begin(self) -> None:
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = self.is_malformed = False
        self._has_head = self._is_upgrade = False
        self._left = 0  # bytes of a body with a length
        self._chunks = self._chunked_bytes = self._trailers = self._line_bytes = 0

    def take_head(self, data: bytearray) -> bool:
        """Remove the head from the data, once it is whole; return whether it is.

        Raises:
            RequestRejected: it is malformed or too large, or begins HTTP/2.

        """
        if not self._parsed and data.startswith((b"\r", b"\n")):  # allowed before a request
            data[:] = data.lstrip(LINE_BREAKS)
        if data.startswith(PREFACE):
            raise RequestRejected(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, OTHER_VERSION)
        end = data.find(EMPTY_LINE, 0, MAX_HEAD_BYTES) + len(EMPTY_LINE)
        is_whole = end >= len(EMPTY_LINE)
        self._parse_head(data, end if is_whole else None)
        if not is_whole:
            if len(data) >= MAX_HEAD_BYTES:
                raise _too_large(data)
            return False
        if len(self.headers) > MAX_HEAD_FIELDS:
            raise RequestRejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_MANY_FIELDS)
        self.head = UPGRADE.sub(b"", bytes(data[:end]))
        del data[:end]
        self._begin_body()
        return True

    def _begin_body(self) -> None:
        if self._is_upgrade:  # llhttp has seen another protocol behind the head, and no body
            self._begin()
            self._parse(self.head)
            if self._is_upgrade:  # CONNECT
                raise RequestRejected(HTTPStatus.BAD_REQUEST, MALFORMED)
        if not self.is_complete:
            self._left = _content_length(self.headers)
        if self.is_complete or self._left:
            self._parser = None  # or each would keep the other in memory

    def _parse_head(self, data: bytearray, end: int | None) -> None:
        """Parse what was not parsed yet of a head, which ends there if it is whole."""
        until = _before_begun_empty_line(data[:MAX_HEAD_BYTES]) if end is None else end
        self._parse(bytes(data[self._parsed : until]))
        self._parsed = until
        # llhttp takes a line feed alone where a request line without a version ends.
        line = data.find(b"\n", 0, MAX_HEAD_BYTES)
        has_bare_line_feed = line >= 0 and data[line - 1 : line] != b"\r"
        if self.is_malformed or has_bare_line_feed or self._has_head is (end is None):
            raise RequestRejected(HTTPStatus.BAD_REQUEST, MALFORMED)

    def take_body(self, data: bytearray) -> bytes:
        """Remove what belongs to the body, with the frames of its chunks, from the data.

        Of chunks so much is taken at once that other clients need not wait for long.
        """
        if self._left:
            end = min(self._left, len(data))
            self._left -= end
            self.is_complete = not self._left
        else:
            end = self._parse_chunks(data)
            if self.is_complete:
                self._parser = None
        taken = bytes(data[:end])
        del data[:end]
        return taken

    def _parse_chunks(self, data: bytearray) -> int:
        """Parse chunks; return where what was parsed ends, at most where the request does."""
        end = 0
        for _ in range(MAX_PIECES):
            piece = bytes(data[end : end + PIECE_BYTES])
            size = piece.find(EMPTY_LINE) + len(EMPTY_LINE)
            if size < len(EMPTY_LINE):
                size = _before_begun_empty_line(piece)
            if not size or self.is_complete or self.is_malformed:
                break
            self._line_bytes += size
            self._parse(piece[:size])
            end += size
            if (
                self._chunks > MAX_SMALL_CHUNKS + self._chunked_bytes // CHUNK_BYTES
                or self._trailers > MAX_TRAILERS
                or self._line_bytes > MAX_CHUNK_LINE_BYTES
            ):
                self.is_malformed = True
        return end

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_upgrade = True
        except httptools.HttpParserError:
            self.is_malformed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or count a trailer."""
        if self._has_head:
            self._trailers += 1
            self._line_bytes = 0
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Record that the head is whole."""
        self._has_head = True

    def on_chunk_header(self) -> None:
        """Count a chunk."""
        self._chunks += 1
        self._line_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Count what is in chunks."""
        self._chunked_bytes += len(body)
        self._line_bytes = 0

    def on_message_complete(self) -> None:
        """Record that the request is whole."""
        self.is_complete = True


def _before_begun_empty_line(data: bytes | bytearray) -> int:
    """Return where the data ends, without what may be the beginning of an empty line.

    So an empty line is parsed at once, and nothing that follows it with it.
    """
    for begun in BEGUN_EMPTY_LINES:
        if data.endswith(begun):
            return len(data) - len(begun)
    return len(data)


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length of a body, 0 if the headers have none."""
    for name, value in headers:
        if name.lower() == b"content-length":
            # llhttp takes any number of zeros; Python converts no more than 4,300 digits.
            return int(value.lstrip(b"0") or 0)
    return 0


def _too_large(data: bytearray) -> RequestRejected:
    if data.find(LINE_BREAKS, 0, MAX_HEAD_BYTES) >= 0:
        return RequestRejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, HEAD_TOO_LARGE)
    return RequestRejected(HTTPStatus.REQUEST_URI_TOO_LONG, LINE_TOO_LONG)


def rejection(status: HTTPStatus, text: str, headers: Mapping[str, str]) -> bytes:
    """Return a whole response with a Message, which needs no escapes; none follows it."""
    body = f'{{"message":"{text}"}}'
    fields = {
        "Content-Type": "application/json",
        **headers,
        "Connection": "close",
        "Content-Length": str(len(body)),
        "Date": formatdate(usegmt=True),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n{body}".encode()
