"""Compresses bodies: once for all that read one at the same time."""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

import zstandard

from registry.responses.encoding import LargeBody

GZIP_LEVEL = 3
ZSTD_LEVEL = 3
# With the header of gzip, which has no time stamp: the same body gives the same bytes.
GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
# Smaller bodies are compressed on the loop: a thread would cost more.
MAX_INLINE_BYTES = 32 * 1024
STEP_BYTES = 1024 * 1024


class Compressor(Protocol):
    """Compresses a body piece by piece."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what has been compressed so far."""

    def flush(self) -> bytes:
        """Return the end."""


# Each is called with the size of the body.
COMPRESSORS: dict[str, Callable[[int], Compressor]] = {
    "zstd": lambda size: zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=size),
    "gzip": lambda _size: zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS),
}


class CompressedResponse(LargeBody):
    """A body in a coding, which grows while it is made. It is in memory; many readers share it."""

    digest = b""

    def __init__(self, digest: bytes) -> None:
        self._parts: list[bytes] = []
        self._waiting = 0
        self.digest = digest
        self.size = 0
        self.is_complete = False

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._waiting > 0

    def steps(self, body: LargeBody, coding: str) -> Iterator[None]:
        """Compress a body, in steps of some ten milliseconds."""
        compressor = COMPRESSORS[coding](body.size)
        left = STEP_BYTES
        for piece in body.pieces():
            self._add(compressor.compress(piece))
            left -= len(piece)
            if left <= 0:
                left = STEP_BYTES
                yield
        self._add(compressor.flush())
        self.is_complete = True

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Wait for it while the context is open."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def parts(self) -> Iterable[bytes]:
        """Return the content in parts."""
        return self._parts

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self.size += len(part)


class Compression:
    """Compresses large bodies in a thread, one at a time.

    `has_room` says whether a compressed form may grow; it is called at each step.
    """

    def __init__(self, has_room: Callable[[LargeBody], bool]) -> None:
        self._has_room = has_room
        self._one_at_a_time = asyncio.Semaphore(1)
        self._made: WeakKeyDictionary[LargeBody, dict[str, CompressedResponse]] = (
            WeakKeyDictionary()
        )
        self._tasks: dict[CompressedResponse, asyncio.Task[None]] = {}

    def compressed(self, body: LargeBody, coding: str) -> CompressedResponse:
        """Return a body in a coding of COMPRESSORS, which `complete` completes."""
        made = self._made.setdefault(body, {})
        if coding not in made:
            made[coding] = CompressedResponse(body.digest)
        return made[coding]

    async def complete(self, body: LargeBody, coding: str) -> bool:
        """Compress all of a body; return False if that is given up for lack of memory."""
        compressed = self.compressed(body, coding)
        if body.size <= MAX_INLINE_BYTES and not compressed.is_complete:
            for _ in compressed.steps(body, coding):
                pass
        if not compressed.is_complete:
            with compressed.wanted():
                if compressed not in self._tasks:
                    making = self._make(compressed, body, coding)
                    self._tasks[compressed] = asyncio.create_task(making)
                await asyncio.shield(self._tasks[compressed])
        return compressed.is_complete

    def made_bytes(self, body: LargeBody) -> int:
        """Return the size of all compressed forms of a body."""
        return sum(compressed.size for compressed in self._made.get(body, {}).values())

    async def _make(self, compressed: CompressedResponse, body: LargeBody, coding: str) -> None:
        steps = compressed.steps(body, coding)
        try:
            async with self._one_at_a_time:
                while (
                    not compressed.is_complete
                    and compressed.is_wanted
                    and self._has_room(compressed)
                ):
                    await asyncio.to_thread(next, steps, None)
        finally:
            del self._tasks[compressed]
            if not compressed.is_complete:
                del self._made[body][coding]
