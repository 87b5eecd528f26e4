"""The file `nodes.expected`: read at the start, at SIGHUP and once a change is complete."""

import asyncio
from pathlib import Path

from clients.message import HostnameInvalid, normalise_hostname
from registry.nodes.context import RegistryContext
from registry.nodes.directory.expected import digest_of
from registry.nodes.nodes import Nodes
from registry.responses.time_slices import TimeSlices

# A file that has not changed for so long is whole.
SETTLED_SECONDS = 2.0
MAX_MIB = 64
AWAY = "away"
MAX_SHOWN = 60

Version = tuple[int, int, int]  # inode, size, mtime


class BadList(Exception):
    """A file that is no list of hosts; the text says why."""


class ExpectedFile:
    """Reads the list of expected hosts; a file that cannot be used keeps the list of before.

    `problem` is why the file cannot be used; empty if it can, or was not looked at yet.
    """

    def __init__(self, context: RegistryContext, nodes: Nodes, slices: TimeSlices) -> None:
        self.path = context.settings.expected
        self.problem = ""
        self._nodes = nodes
        self._slices = slices
        self._log = context.log
        self._wall, self._steady = context.clocks.wall, context.clocks.steady
        self._turns = asyncio.Lock()
        self._read: Version | None = None
        self._seen: Version | None = None
        self._seen_since = 0.0

    async def start(self) -> None:
        """Read the file, unless it has just been written: `look` reads it then."""
        if self.path is None:
            return
        self._seen = await asyncio.to_thread(_version, self.path)
        self._seen_since = self._steady()
        if self._seen is None or self._wall() - self._seen[2] / 1e9 >= SETTLED_SECONDS:
            await self.read()

    async def look(self) -> None:
        """Read the file if it has changed, and not in the last two seconds."""
        if self.path is None:
            return
        version = await asyncio.to_thread(_version, self.path)
        if version != self._seen:
            self._seen, self._seen_since = version, self._steady()
        elif version != self._read and self._steady() - self._seen_since >= SETTLED_SECONDS:
            await self.read()
        await self._slices.run(self._nodes.expected.release())

    async def read(self) -> None:
        """Read the file now."""
        if self.path is None:
            return
        async with self._turns:
            self._read = await asyncio.to_thread(_version, self.path)
            try:
                hosts, digest = await asyncio.to_thread(_hosts, self.path)
            except BadList as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    self._log.warning("expected hosts not read", reason=self.problem)
                return
            if self.problem or digest != self._nodes.expected.digest:
                self._log.info("expected hosts read", hosts=len(hosts))
            self.problem = ""
            await self._nodes.expect(hosts, digest, self._slices)


def _version(path: Path) -> Version | None:
    """Return what changes with the content of a file; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _hosts(path: Path) -> tuple[dict[str, bool], str]:
    """Return the hosts of a file by name, each with whether it is away. Raises BadList."""
    try:
        if path.exists() and not path.is_file():
            raise BadList(f"{path} is no regular file")
        with path.open("rb") as file:
            content = file.read(MAX_MIB * 1024 * 1024 + 1)
        if len(content) > MAX_MIB * 1024 * 1024:
            raise BadList(f"{path} has more than {MAX_MIB} MiB; name hosts alone, one a line")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise BadList(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadList(f"{path} is not UTF-8 text: {error}") from error
    try:
        found = parsed(text)
    except BadList as error:
        raise BadList(f"{path}: {error}") from error
    return found, digest_of(found)


def parsed(text: str) -> dict[str, bool]:
    """Return the hosts that a text names, sorted, each with whether it is away. Raises BadList."""
    found: dict[str, bool] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            hostname = normalise_hostname(words[0])
        except HostnameInvalid as error:
            raise BadList(f"line {number}: {words[0][:MAX_SHOWN]!a} is no hostname") from error
        if words[1:] not in ([], [AWAY]):
            raise BadList(
                f"line {number}: {words[1][:MAX_SHOWN]!a} follows {hostname}; a line is a hostname,"
                f" or a hostname and `{AWAY}`"
            )
        is_away = len(words) > 1
        if found.setdefault(hostname, is_away) != is_away:
            raise BadList(f"line {number}: {hostname} is also named with the other state")
    if not found:
        raise BadList(
            "it names no host; take `nodes.expected` out of the settings if none is meant"
        )
    return dict(sorted(found.items()))
