"""Bounds the memory that the readers of large answers hold together."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Container, Hashable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from registry.errors import TooManyReaders
from registry.responses.encoding import PIECE_BYTES, LargeBody

MAX_HELD_BYTES = 64 * 1024 * 1024
# A piece that is being sent, what the transport has of it, and the objects of a request.
READER_BYTES = 128 * 1024
# A reader that takes longer than this may be cut off to make room for others.
PATIENCE_SECONDS = 60.0
SMALL_BYTES = 32 * 1024
# The first readers get large pieces: each piece costs some 0.1 ms of CPU time. A reader
# holds one, and the transport another.
LARGE_PIECE_BYTES = 256 * 1024
WAIT_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 1.0
REJECTION = "too many clients are reading large answers at present; ask again, or for pages"


class Expected(NamedTuple):
    """A body that is not made yet, and its size. Readers with the same key will share one body."""

    key: Hashable
    held_bytes: int


NOTHING = Expected(None, 0)


class Reader:
    """A client that reads a large answer, or waits for it to be made; `owner` is its key's name.

    `abort` ends its connection. `bodies` is what it reads: both forms of an answer while it
    is being compressed.
    """

    def __init__(
        self, abort: Callable[[], None], since: float, expected: Expected, owner: str
    ) -> None:
        self.owner = owner
        self.abort = abort
        self.since = since
        self.expected = expected
        self.bodies: tuple[LargeBody, ...] = ()
        self.piece_bytes = PIECE_BYTES
        self.is_cut_off = False


class Readers:
    """The readers of large answers, in the order in which they began.

    If there is no room for one more, it waits for its turn. To make room, the reader that began
    first is cut off, but not before it has had a minute. The readers of one key take at most half
    of the room: those beyond wait for one another. What is pinned is in no key's share, since the
    readers of other keys may pin it.
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
        self._max_of_owner = max_held_bytes // 2
        self._readers: dict[Reader, None] = {}
        self._owners: Counter[str] = Counter()
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._readers)

    @asynccontextmanager
    async def reading(
        self, abort: Callable[[], None], *, expected: Expected = NOTHING, owner: str = ""
    ) -> AsyncIterator[Reader]:
        """Admit a reader, to which a body is attached later. Raises TooManyReaders."""
        if self._readers:  # a single one always has room
            await self._wait_for_room(expected, owner)
        reader = Reader(abort, self._clock(), expected, owner)
        self._readers[reader] = None
        self._owners[owner] += 1
        try:
            yield reader
        finally:
            self._readers.pop(reader, None)
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
            self._changed.set()

    def widen(self, reader: Reader) -> None:
        """Let a reader have large pieces, while few read: they leave room for others."""
        more = 2 * LARGE_PIECE_BYTES
        own = _held_bytes(self._of(reader.owner))
        if max(self.held_bytes(), 2 * own) + more <= self._max_held_bytes // 8:
            reader.piece_bytes = LARGE_PIECE_BYTES

    def attach(self, reader: Reader, *bodies: LargeBody) -> None:
        """Record what a reader reads from now on."""
        reader.bodies = bodies
        self._changed.set()

    def has_room(self, body: LargeBody) -> bool:
        """Return whether a body may grow: no more is held than allowed, in all and for its keys."""
        owners = {reader.owner for reader in self._readers if body in reader.bodies}
        return self.held_bytes() <= self._max_held_bytes and all(
            _held_bytes(self._of(owner)) <= self._max_of_owner for owner in owners
        )

    def held_bytes(self) -> int:
        """Return the memory that all readers hold; a body that several read counts once."""
        pinned: Counter[Hashable] = Counter()
        for reader in self._readers:
            for body in reader.bodies:
                owner, size = body.pinned()
                pinned[owner] = max(pinned[owner], size)
        return _held_bytes(self._readers) + pinned.total()

    def _of(self, owner: str) -> list[Reader]:
        return [reader for reader in self._readers if reader.owner == owner]

    async def _wait_for_room(self, expected: Expected, owner: str) -> None:
        # Small answers do not wait behind large ones: some room is reserved for them.
        is_small = expected.held_bytes <= SMALL_BYTES
        if is_small and self._has_share(expected, owner) and self._has_room(expected, reserve=0):
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                while not await self._is_admitted(expected, owner):
                    await self._wait_for_change([owner])
        except TimeoutError as error:
            raise TooManyReaders(REJECTION) from error

    async def _is_admitted(self, expected: Expected, owner: str) -> bool:
        """Wait for room in the queue; return False, outside of it, if the key has no share left."""
        if not self._has_share(expected, owner):
            return False
        async with self._queue:
            while self._has_share(expected, owner):
                if self._has_room(expected, reserve=self._reserve_bytes):
                    return True
                await self._wait_for_change(self._owners)
        return False

    def _has_share(self, expected: Expected, owner: str) -> bool:
        own = self._of(owner)
        return not own or _held_bytes(own, expected) + READER_BYTES <= self._max_of_owner

    async def _wait_for_change(self, owners: Container[str]) -> None:
        self._cut_off_oldest(owners)
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await self._changed.wait()

    def _cut_off_oldest(self, owners: Container[str]) -> None:
        """Cut off the one of these keys that has been reading for longest, if that is too long."""
        for reader in self._readers:
            if self._clock() - reader.since < PATIENCE_SECONDS:
                break
            if not reader.is_cut_off and reader.owner in owners:
                reader.is_cut_off = True
                reader.abort()
                break

    def _has_room(self, expected: Expected, *, reserve: int) -> bool:
        if not self._readers:
            return True
        more = _expected_bytes(self._readers, expected) - _expected_bytes(self._readers)
        return self.held_bytes() + more + READER_BYTES <= self._max_held_bytes - reserve


def _held_bytes(readers: Collection[Reader], newcomer: Expected = NOTHING) -> int:
    """Return the memory for readers alone; a body that several read counts once."""
    bodies = {id(body): body for reader in readers for body in reader.bodies}.values()
    held = sum(body.held_bytes() for body in bodies) + READER_BYTES * len(readers)
    held += sum(2 * (reader.piece_bytes - PIECE_BYTES) for reader in readers)
    return held + _expected_bytes(readers, newcomer)


def _expected_bytes(readers: Collection[Reader], newcomer: Expected = NOTHING) -> int:
    """Return the size of the bodies to be made: two of each, the present and the next one."""
    expected = {reader.expected for reader in readers if not reader.bodies}
    return sum(2 * body.held_bytes for body in expected | {newcomer})
