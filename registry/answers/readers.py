"""How many may read large answers at once: the memory that they hold is bounded."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from registry.answers.encoding import LargeBody
from registry.errors import TooManyReaders

MAX_HELD_BYTES = 64 * 1024 * 1024
# A piece that is being sent, what the transport has of it, and the objects of a request.
READER_BYTES = 128 * 1024
# A reader that takes longer than this may be cut off to make room for others.
PATIENCE_SECONDS = 60.0
SMALL_BYTES = 32 * 1024
WAIT_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 1.0
REFUSAL = "too many clients are reading large answers at present; ask again, or for pages"


class Expected(NamedTuple):
    """A body that is still to be made, and its size; who expects equal ones shares them."""

    key: Hashable
    held_bytes: int


NOTHING = Expected(None, 0)


class Reader:
    """One who reads a large answer, or waits for it to be made; `abort` ends its connection."""

    def __init__(self, abort: Callable[[], None], since: float, expected: Expected) -> None:
        self.abort = abort
        self.since = since
        self.expected = expected
        self.body: LargeBody | None = None
        self.is_cut_off = False


class Readers:
    """All who read large answers, in the order in which they began.

    Without room for one more, a newcomer waits for its turn. The slowest are cut off to make room,
    but none before it has had a minute.
    """

    def __init__(
        self,
        *,
        max_held_bytes: int = MAX_HELD_BYTES,
        wait_seconds: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_held_bytes = max_held_bytes
        self._reserve_bytes = max_held_bytes // 16
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._readers: dict[Reader, None] = {}
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._readers)

    @asynccontextmanager
    async def reading(
        self, abort: Callable[[], None], *, expected: Expected = NOTHING
    ) -> AsyncIterator[Reader]:
        """Admit a reader, which then has its body attached. Raises TooManyReaders."""
        await self._wait_for_room(expected)
        reader = Reader(abort, self._clock(), expected)
        self._readers[reader] = None
        try:
            yield reader
        finally:
            self._readers.pop(reader, None)
            self._changed.set()

    def attach(self, reader: Reader, body: LargeBody) -> None:
        """Note what a reader reads."""
        reader.body = body
        self._changed.set()

    def require_room(self) -> None:
        """Raise TooManyReaders if more is held than allowed, and by more than one reader."""
        if len(self._readers) > 1 and self.held_bytes() > self._max_held_bytes:
            raise TooManyReaders(REFUSAL)

    def held_bytes(self) -> int:
        """Return the memory that all readers hold; a body that several read counts once."""
        read = {id(reader.body): reader.body for reader in self._readers if reader.body}
        bodies = read.values()
        held = sum(body.held_bytes() for body in bodies)
        held += max([body.pinned_bytes() for body in bodies], default=0)
        return held + self._expected_bytes(NOTHING) + READER_BYTES * len(self._readers)

    def _expected_bytes(self, newcomer: Expected) -> int:
        """Return the size of the bodies to be made: two of each, the present and the next one."""
        expected = {reader.expected for reader in self._readers if reader.body is None}
        return sum(2 * body.held_bytes for body in expected | {newcomer})

    async def _wait_for_room(self, expected: Expected) -> None:
        # What is small does not wait behind what is large: some room is kept for it.
        if expected.held_bytes <= SMALL_BYTES and self._has_room(expected, reserve=0):
            return
        try:
            async with asyncio.timeout(self._wait_seconds), self._queue:
                while not self._has_room(expected, reserve=self._reserve_bytes):
                    await self._wait_for_change()
        except TimeoutError as error:
            raise TooManyReaders(REFUSAL) from error

    async def _wait_for_change(self) -> None:
        self._cut_off_oldest()
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await self._changed.wait()

    def _cut_off_oldest(self) -> None:
        """Cut off the reader that has been reading for longest, if that is very long."""
        for reader in self._readers:
            if self._clock() - reader.since < PATIENCE_SECONDS:
                break
            if not reader.is_cut_off:
                reader.is_cut_off = True
                reader.abort()
                break

    def _has_room(self, expected: Expected, *, reserve: int) -> bool:
        if not self._readers:
            return True
        more = self._expected_bytes(expected) - self._expected_bytes(NOTHING) + READER_BYTES
        return self.held_bytes() + more <= self._max_held_bytes - reserve
