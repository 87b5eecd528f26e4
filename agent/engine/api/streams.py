"""Streams of the engine: logs, lines of JSON, and the progress of a pull."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import msgspec

from agent.engine.api.responses import PullLine
from agent.engine.api.translation import MALFORMED, from_pull, well_formed
from agent.engine.errors import EngineRefused, TooManyStreams
from agent.engine.models import PullProgress

HEADER = 8
LONGEST_LINE = 1 << 20
FOUND, QUEUED = "Pulling fs layer", "Waiting"
DONE = ("Download complete", "Pull complete", "Already exists", "Verifying Checksum", "Extracting")
PULL_LINE = msgspec.json.Decoder(PullLine)


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
        EngineRefused: a line is too long.

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
                raise EngineRefused(f"{MALFORMED}: a line of more than {LONGEST_LINE} bytes")
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


class PullReport:
    """Sums the progress of the layers of an image."""

    def __init__(self, progress: Callable[[PullProgress], None]) -> None:
        self._progress = progress
        self._layers: dict[str, tuple[int, int]] = {}
        self._statuses: dict[str, str] = {}

    @property
    def is_queued(self) -> bool:
        """Whether the engine downloads nothing of it before layers of other pulls."""
        unfinished = {each for each in self._statuses.values() if each not in DONE}
        return unfinished == {QUEUED}

    def take(self, line: bytes) -> None:
        """Take one line of the report.

        Raises:
            ImageUnavailable, DiskFull: the line reports a failure, though the status was 200.
            EngineRefused: the line cannot be read.

        """
        with well_formed():
            entry = PULL_LINE.decode(line)
        text = (entry.error_detail.message if entry.error_detail else "") or entry.error
        if text:
            raise from_pull(text)
        layer, detail = entry.id, entry.progress_detail
        if entry.status == FOUND or layer in self._statuses:
            self._statuses[layer] = entry.status
        if layer and entry.status == "Downloading" and detail and detail.total:
            self._layers[layer] = (detail.current, detail.total)
        elif layer in self._layers and entry.status in DONE:
            self._layers[layer] = (self._layers[layer][1], self._layers[layer][1])
        else:
            return
        done, total = (sum(column) for column in zip(*self._layers.values(), strict=True))
        self._progress(PullProgress(done_bytes=done, total_bytes=total))
