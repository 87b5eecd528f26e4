"""Streams of the engine: how many are open, their lines, and the frames of logs."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager

from agent.engine.errors import EngineRejected, TooManyStreams
from agent.engine.translation import MALFORMED

HEADER = 8
LONGEST_LINE = 1 << 20


class Budget:
    """How many streams of one kind may be open at the same time.

    Each kind has its own limit, so that readers of logs keep no transfer of data from its place.
    """

    def __init__(self, *, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open = 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count one more while the context is open; TooManyStreams."""
        if self._open >= self._most:
            raise TooManyStreams(f"{self._most} {self._what} are under way; try again later")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def lines(chunks: AsyncIterator[bytes], *, skip_long: bool = False) -> AsyncGenerator[bytes]:
    """Cut a stream into its lines, without those that are empty.

    With ``skip_long`` a line that is too long is skipped.

    Raises:
        EngineRejected: a line is too long.

    """
    rest, is_long = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip() and not is_long:
                yield line
            is_long = False
        if len(rest) > LONGEST_LINE:
            if not skip_long:
                raise EngineRejected(f"{MALFORMED}: a line of more than {LONGEST_LINE} bytes")
            rest, is_long = b"", True
    if rest.strip() and not is_long:
        yield rest


class LogFrames:
    """Removes the frame headers from a log that multiplexes stdout and stderr."""

    def __init__(self) -> None:
        self._missing = 0
        self._header = b""

    def contents(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the part of the log in the next piece of the stream; a frame may span pieces."""
        at = 0
        while at < len(chunk):
            if self._missing:
                content = chunk[at : at + self._missing]
                yield content
                self._missing -= len(content)
                at += len(content)
            else:
                taken = chunk[at : at + HEADER - len(self._header)]
                self._header += taken
                at += len(taken)
                if len(self._header) == HEADER:
                    self._missing, self._header = int.from_bytes(self._header[4:], "big"), b""
