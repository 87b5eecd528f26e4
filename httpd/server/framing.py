"""Finds where requests end in the bytes of a client: first a head, then its body.

Only lengths are read here, and the ends of lines. Whether a head is well-formed otherwise, aiohttp
decides.
"""

import re
from collections.abc import Callable
from typing import Protocol

MAX_HEAD_BYTES = 16 * 1024
# Each costs a parser some microseconds, also for clients without a key.
MAX_HEAD_FIELDS = 128
END_OF_HEAD = b"\r\n\r\n"
LINE_BREAKS = b"\r\n"
# llhttp accepts any number of zeros before a length.
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
TUNNEL = b"CONNECT "
# The beginning of HTTP/2, for which llhttp would wait for more.
PREFACE = b"PRI * HTTP/2.0\r\n"
NO_METHOD = b"NO-"  # to be refused
# In place of what cannot become a head: aiohttp refuses this at once. Behind other malformed heads
# it may wait for more.
NO_HEAD = b"\0" + END_OF_HEAD
CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
# No more than llhttp takes, or aiohttp would wait for the end of a body that it has given up.
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\w.-]+(?:=(?:[\w.-]+|\"[\w. -]*\"))?)*\r\n")
TRAILER = re.compile(rb"[\w!#$%&'*+.^`|~-]+:[\t -~\x80-\xff]*\r\n")
MAX_CHUNK_LINE_BYTES = 1024
# Each chunk costs some microseconds, also for clients without a key: so small ones are limited.
MAX_SMALL_CHUNKS = 500
CHUNK_BYTES = 256
MAX_TRAILERS = 100
END_OF_LINE = b"\r\n"


class HeadRefused(Exception):
    """A request's head is refused before it is parsed, with an answer of its own."""


class OtherVersion(HeadRefused):
    """The client speaks HTTP/2, whose first bytes look like a head."""


class HeadTooLarge(HeadRefused):
    """A request's head has more than MAX_HEAD_BYTES."""


class RequestLineTooLong(HeadRefused):
    """The first line alone has more than MAX_HEAD_BYTES."""


class TooManyFields(HeadRefused):
    """A request's head has more than MAX_HEAD_FIELDS."""


def take_head(data: bytearray) -> bytes | None:
    """Remove a head, with the empty line at its end, from the beginning of the data.

    Returns None if it is not complete, NO_HEAD at once for what cannot become one.

    Raises:
        HeadRefused: it is larger than allowed, has more fields, or begins HTTP/2.

    """
    if data.startswith((b"\r", b"\n")):  # allowed before a request
        data[:] = data.lstrip(LINE_BREAKS)
    if data.startswith(PREFACE):
        raise OtherVersion
    end = data.find(END_OF_HEAD, 0, MAX_HEAD_BYTES) + len(END_OF_HEAD)
    is_complete = end >= len(END_OF_HEAD)
    head = bytes(data[:end]) if is_complete else data
    if not _may_become_head(head):
        data.clear()
        return NO_HEAD
    if not is_complete:
        if len(data) >= MAX_HEAD_BYTES:
            has_line = data.find(END_OF_LINE, 0, MAX_HEAD_BYTES) >= 0
            raise HeadTooLarge if has_line else RequestLineTooLong
        return None
    if head.count(END_OF_LINE) > MAX_HEAD_FIELDS + 2:  # the request line, and the empty line
        raise TooManyFields
    del data[:end]
    return bytes(head)


def _may_become_head(data: bytes | bytearray) -> bool:
    """Return whether data begins with a capital letter, if at all, and each line ends in CRLF.

    Each piece of a head is looked at, so a stranger decides how often. To count costs a twentieth
    of a search with a regular expression.
    """
    if data and not data[:1].isupper():
        return False
    line_feeds = data.count(b"\n", 0, MAX_HEAD_BYTES)
    return line_feeds == data.count(END_OF_LINE, 0, MAX_HEAD_BYTES)


def without_other_protocols(head: bytes) -> bytes:
    """Return a head without the header Upgrade, and with an unknown method for CONNECT.

    What follows them may be another protocol, so aiohttp would not read the request's body.
    """
    if head.startswith(TUNNEL):
        head = NO_METHOD + head
    return UPGRADE.sub(b"", head)


class Body(Protocol):
    """The body of a request, as it arrives."""

    @property
    def is_complete(self) -> bool:
        """Whether all of it was taken."""

    @property
    def is_malformed(self) -> bool:
        """Whether its framing is broken, so that its end cannot be found."""

    def take(self, data: bytearray) -> bytes:
        """Remove what belongs to it from the beginning of the data."""


def body_after(head: bytes) -> Body | None:
    """Return the body that follows this head; None if there is none."""
    if CHUNKED.search(head):
        return ChunkedBody()
    length = CONTENT_LENGTH.search(head)
    if length is None or not int(length[1]):
        return None
    return SizedBody(int(length[1]))


class SizedBody:
    """A body whose length is given in bytes."""

    is_malformed = False

    def __init__(self, size: int) -> None:
        self._left = size

    @property
    def is_complete(self) -> bool:
        """Whether all of it was taken."""
        return self._left == 0

    def take(self, data: bytearray) -> bytes:
        """Remove what belongs to it from the beginning of the data."""
        taken = bytes(data[: self._left])
        del data[: self._left]
        self._left -= len(taken)
        return taken


class ChunkedBody:
    """A body in chunks, each after a line with its size; the last has the size 0.

    Behind the last chunk come trailers, up to an empty line.
    """

    _end_line: Callable[[bytes], None]

    def __init__(self) -> None:
        self.is_complete = self.is_malformed = False
        self._left = self._size = self._chunks = self._trailers = 0
        self._line = bytearray()
        self._end_line = self._end_size_line

    def take(self, data: bytearray) -> bytes:
        """Remove what belongs to it from the beginning of the data."""
        end = 0
        while end < len(data) and not (self.is_complete or self.is_malformed):
            end = self._skip_chunk(data, end) if self._left else self._read_line(data, end)
        taken = bytes(data[:end])
        del data[:end]
        return taken

    def _skip_chunk(self, data: bytearray, start: int) -> int:
        end = min(start + self._left, len(data))
        self._left -= end - start
        return end

    def _read_line(self, data: bytearray, start: int) -> int:
        end = data.find(b"\n", start, start + MAX_CHUNK_LINE_BYTES) + 1 or len(data)
        self._line += data[start:end]
        is_in_place = self._end_line != self._end_chunk or END_OF_LINE.startswith(self._line)
        if len(self._line) > MAX_CHUNK_LINE_BYTES or not is_in_place:
            self.is_malformed = True
        elif self._line.endswith(b"\n"):
            line = bytes(self._line)
            self._line.clear()
            self._end_line(line)
        return end

    def _end_size_line(self, line: bytes) -> None:
        size = CHUNK_SIZE.fullmatch(line)
        if size is None:
            self.is_malformed = True
            return
        self._left = int(size[1], 16)
        self._size += self._left
        self._chunks += 1
        self.is_malformed = self._chunks > MAX_SMALL_CHUNKS + self._size // CHUNK_BYTES
        self._end_line = self._end_chunk if self._left else self._end_trailer

    def _end_chunk(self, _line: bytes) -> None:
        self._end_line = self._end_size_line

    def _end_trailer(self, line: bytes) -> None:
        self._trailers += 1
        self.is_complete = line == END_OF_LINE
        is_trailer = TRAILER.fullmatch(line) is not None and self._trailers <= MAX_TRAILERS
        self.is_malformed = not (self.is_complete or is_trailer)
