"""Compressed forms of bodies, each made once for all who read it at the same time."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol
from weakref import WeakKeyDictionary

import zstandard

from registry.answers.encoding import LargeBody, in_pieces

GZIP_LEVEL = 3
ZSTD_LEVEL = 3
# With the header of gzip, which has no time stamp: the same body gives the same bytes.
GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
# Smaller bodies are compressed on the loop: a thread would cost more.
MAX_INLINE_BYTES = 32 * 1024


class Compressor(Protocol):
    """Compresses a body piece by piece."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what is compressed by now."""

    def flush(self) -> bytes:
        """Return the end."""


# Each is called with the size of the body.
COMPRESSORS: dict[str, Callable[[int], Compressor]] = {
    "zstd": lambda size: zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size),
    "gzip": lambda _size: zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS),
}


class CompressedBody:
    """A body in a coding. All of it is in memory; many readers share it."""

    def __init__(self, body: LargeBody, coding: str) -> None:
        compressor = COMPRESSORS[coding](body.size)
        pieces = [compressor.compress(piece) for piece in body.pieces()]
        self._parts = [part for part in [*pieces, compressor.flush()] if part]
        self.digest = body.digest
        self.size = sum(map(len, self._parts))

    def pieces(self) -> Iterator[bytes]:
        """Return the content in pieces."""
        return in_pieces(self._parts)

    def held_bytes(self) -> int:
        """Return its size."""
        return self.size

    def pinned_bytes(self) -> int:
        """Return 0."""
        return 0


class Compression:
    """Compresses large bodies in a thread, one at a time."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Semaphore(1)
        self._tasks: WeakKeyDictionary[LargeBody, dict[str, asyncio.Task[CompressedBody]]] = (
            WeakKeyDictionary()
        )

    async def compressed(self, body: LargeBody, coding: str) -> CompressedBody:
        """Return a body in a coding of COMPRESSORS."""
        if body.size <= MAX_INLINE_BYTES:
            return CompressedBody(body, coding)
        tasks = self._tasks.setdefault(body, {})
        if coding not in tasks or _has_failed(tasks[coding]):
            tasks[coding] = asyncio.create_task(self._compress(body, coding))
        return await asyncio.shield(tasks[coding])

    async def _compress(self, body: LargeBody, coding: str) -> CompressedBody:
        async with self._one_at_a_time:
            return await asyncio.to_thread(CompressedBody, body, coding)


def _has_failed(task: asyncio.Task[CompressedBody]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
