"""Large bodies, JSON arrays among them, in pieces; several readers share what a body holds."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

PIECE_BYTES = 32 * 1024


class Pinned(NamedTuple):
    """Bytes that are held for the readers of all bodies of the same owner, which share them.

    Each body has its own figure for them, and the largest one is counted.
    """

    owner: Hashable
    size: int


class LargeBody(ABC):
    """A body that several readers may be reading, each at its own speed.

    `size` is its length in bytes. What is not overridden holds for one that is in memory as a
    whole.
    """

    size: int

    @property
    @abstractmethod
    def digest(self) -> bytes:
        """What identifies the bytes; registries that answer the same have the same."""

    @abstractmethod
    def parts(self) -> Iterable[bytes]:
        """Return the content in parts of any size."""

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """Return the content in pieces of a size, each made when it is asked for."""
        return in_pieces(self.parts(), size)

    def held_bytes(self) -> int:
        """Return how much memory is held for the readers of this body alone."""
        return self.size

    def pinned(self) -> Pinned:
        """Return how much is held for the readers of this body and of others."""
        return Pinned(None, 0)


class WholeBody(LargeBody):
    """A body that is in memory as a whole, for one reader."""

    digest = b""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def parts(self) -> Iterable[bytes]:
        """Return the content."""
        return [self._content]


def array_parts(chunks: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the parts of a JSON array; each chunk is values with commas between them, in parts."""
    separator = b"["
    for chunk in chunks:
        yield separator
        yield from chunk
        separator = b","
    yield b"]" if separator == b"," else b"[]"


def in_pieces(parts: Iterable[bytes], size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the same bytes in pieces of a size. A large part is not copied whole.

    The pieces do not depend on the parts. So a compressed body does not, either.
    """
    piece: list[bytes | memoryview] = []
    room = size
    for part in parts:
        if len(part) < room:
            piece.append(part)
            room -= len(part)
            continue
        rest = memoryview(part)
        while len(rest) >= room:
            yield b"".join([*piece, rest[:room]])
            piece, rest, room = [], rest[room:], size
        if rest:
            piece.append(rest)
            room -= len(rest)
    if piece:
        yield b"".join(piece)
