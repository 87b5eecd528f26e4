"""Large JSON arrays in pieces: what one of them holds is shared by all who read it."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

DIGEST_BYTES = 16
PIECE_BYTES = 32 * 1024
MAX_JOINED_BYTES = 256 * 1024


class LargeBody(Protocol):
    """A body that several readers may be reading, each at its own speed.

    `digest` identifies its content, `size` is its length in bytes.
    """

    @property
    def digest(self) -> bytes:
        """Return what identifies the content."""

    @property
    def size(self) -> int:
        """Return the length in bytes."""

    def pieces(self) -> Iterator[bytes]:
        """Return the content in pieces, each made when it is asked for."""

    def held_bytes(self) -> int:
        """Return how much memory is held for the readers of this body alone."""

    def pinned_bytes(self) -> int:
        """Return how much is held for the readers of this body, and of those made after it."""


class WholeBody:
    """A body that is in memory as a whole, for one reader."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.digest = b""
        self.size = len(content)

    def pieces(self) -> Iterator[bytes]:
        """Return the content in pieces."""
        return in_pieces([self._content])

    def held_bytes(self) -> int:
        """Return its size."""
        return self.size

    def pinned_bytes(self) -> int:
        """Return 0."""
        return 0


class EncodedRun(NamedTuple):
    """JSON values with commas between them, in parts, and a digest of these bytes."""

    parts: Sequence[bytes]
    size: int
    digest: bytes


class RunEncoder:
    """Joins JSON values into a run, some at a time."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[bytes]) -> None:
        """Add encoded values."""
        if not values:
            return
        joined = b",".join(values)
        if self._parts:
            joined = b"," + joined
        self._hash.update(joined)
        self._parts.append(joined)
        self._size += len(joined)

    def finish(self) -> EncodedRun:
        """Return the run. Small parts are joined; to join large ones would take too long."""
        is_small = self._size <= MAX_JOINED_BYTES
        parts = [b"".join(self._parts)] if is_small else self._parts
        return EncodedRun(parts, self._size, self._hash.digest())


def join_values(values: Sequence[bytes]) -> EncodedRun:
    """Join encoded values."""
    encoder = RunEncoder()
    encoder.add(values)
    return encoder.finish()


def array_parts(chunks: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Return the parts of a JSON array; each chunk is values with commas between them, in parts."""
    separator = b"["
    for chunk in chunks:
        yield separator
        yield from chunk
        separator = b","
    yield b"]" if separator == b"," else b"[]"


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Return the same bytes in pieces of a good size to send. A large part is not copied whole."""
    piece = bytearray()
    for part in parts:
        for start in range(0, len(part), PIECE_BYTES):
            piece += memoryview(part)[start : start + PIECE_BYTES]
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)
