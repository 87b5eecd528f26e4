"""The lines of an app's log, as its agent sends them, and the place up to which one was read."""

import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from cli.output.text import duration_seconds

if TYPE_CHECKING:
    from clients.agent import AgentClient

# A longer line is taken as several.
MAX_LINE_BYTES = 1024 * 1024
# The engine writes a longer line in pieces, each with its time where times are asked for.
PIECE_BYTES = 16 * 1024
TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{9}Z ")
SECOND_CHARS = len("2026-01-31T12:00:00")


async def log_lines(
    agent: "AgentClient",
    name: str,
    *,
    tail: str,
    since: str | None,
    follow: bool,
    timestamps: bool = False,
) -> AsyncIterator[list[bytes]]:
    """Yield the lines of an app's log as they arrive; AgentError.

    ``since`` is a time, or a duration such as `10m`, which is counted by the clock of the host.
    """
    seconds = duration_seconds(since)
    if seconds is not None:
        await agent.app(name)
        now = time.time() + (agent.clock_offset_seconds or 0)
        since = f"{now - seconds:.0f}"
    pending = b""
    async with agent.logs(
        name, tail=tail, since=since, follow=follow, timestamps=timestamps
    ) as pieces:
        yield []  # it has begun
        async for piece in pieces:
            *lines, pending = (pending + piece).split(b"\n")
            if len(pending) > MAX_LINE_BYTES:
                lines, pending = [*lines, pending], b""
            yield lines
    if pending:
        yield [pending]


def time_and_line(line: bytes) -> tuple[str, str]:
    """Return the time of a line that begins with it, and the line as it was written."""
    found = TIME.match(line)
    if found is None:
        return "", line.decode("utf-8", "replace")
    text, place = line[found.end() :], PIECE_BYTES
    while again := TIME.match(text, place):
        text = text[:place] + text[again.end() :]
        place += PIECE_BYTES
    return found[0].decode().rstrip(), text.decode("utf-8", "replace")


class LogPlace:
    """The place up to which a log was read, from which it is read on after a break.

    The engine knows times to seconds here: what it sends again of the last second is skipped, and
    what stands before the first line that was read.
    """

    def __init__(self) -> None:
        self._first = b""
        self._second = b""
        self._seen = Counter[bytes]()
        self._again = Counter[bytes]()

    @property
    def since(self) -> str | None:
        """Return the time from which to ask now; None if no line was read."""
        return f"{self._second.decode()}Z" if self._second else None

    def resume(self) -> None:
        """Expect what was read of the last second once more."""
        self._again = self._seen.copy()

    def is_new(self, line: bytes) -> bool:
        """Note a line that begins with its time; return whether it was not read before."""
        if self._again[line]:
            self._again[line] -= 1
            return False
        found = TIME.match(line)
        written = found[0] if found else self._first
        if written < self._first:
            return False
        self._first = self._first or written
        second = written[:SECOND_CHARS]
        if second > self._second:
            self._second = second
            self._seen.clear()
        self._seen[line] += 1
        return True
