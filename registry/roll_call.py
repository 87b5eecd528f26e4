"""The roll call: the list of expected hosts, which of them report, and which others do."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from clients.message import HostnameInvalid, normalise_hostname
from registry.errors import ExpectedUnread, NoRollCall
from registry.nodes.ages import chunks, digest_of
from registry.nodes.context import RegistryContext
from registry.nodes.directory import FRESH, KnownNode
from registry.nodes.heartbeat_counts import RejectedHeartbeats
from registry.nodes.nodes import Nodes
from registry.nodes.warm_up import WarmUp
from registry.responses.slices import TimeSlices

# A file that has not changed for so long is whole.
SETTLED_SECONDS = 2.0
MAX_MIB = 64
MAX_SHOWN = 60

Version = tuple[int, int, int]  # inode, size, mtime
PRESENT = "present"
LISTED = STALE, ABSENT, AWAY, UNEXPECTED = "stale", "absent", "away", "unexpected"
STATES = (PRESENT, *LISTED)
# A metric names no more hosts: each is a series.
MAX_NAMED = 100
_encode = msgspec.json.encode


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
            await self._nodes.expect(hosts, digest)


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


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """An expected host that does not report.

    `last_seen` is Unix time in seconds, None if the registry knows no node of this name. `rejected`
    is why its last heartbeat was rejected, None if it was not.
    """

    hostname: str
    last_seen: int | None
    rejected: str | None


class Summary(NamedTuple):
    """How many hosts are in each state; the first absent ones, and how many away ones are stale."""

    counts: Counter[str]
    absent: tuple[str, ...]
    stale_away: int

    def numbers(self) -> dict[str, int]:
        """Return how many hosts are expected, and how many are in each state."""
        expected = self.counts.total() - self.counts[UNEXPECTED]
        return {"expected": expected, **{state: self.counts[state] for state in STATES}}


class RollCalls:
    """Calls the roll of the expected hosts; `latest` is the last one, for metrics and the status.

    `latest` is None while the list or the nodes are not known.
    """

    def __init__(
        self,
        context: RegistryContext,
        nodes: Nodes,
        file: ExpectedFile,
        warm_up: WarmUp,
        rejected: RejectedHeartbeats,
    ) -> None:
        self._directory = context.directory
        self._freshness = context.settings.freshness
        self._monotonic = context.clocks.monotonic
        self._nodes = nodes
        self.file = file
        self._warm_up = warm_up
        self._rejected = rejected
        self._latest: Summary | None = None

    @property
    def latest(self) -> Summary | None:
        """The last roll call; None without a list, and while hosts may be missing in it."""
        return None if self._warm_up.remaining_seconds else self._latest

    @property
    def expected_bytes(self) -> int:
        """How much memory an answer may take."""
        return 100 * (len(self._nodes.expected.hosts) + len(self._directory))

    def require(self) -> None:
        """Raise NoRollCall, ExpectedUnread or WarmingUp if there can be none."""
        if self.file.path is None:
            raise NoRollCall("`nodes.expected` is not set, so no host is expected")
        if not self._nodes.expected.is_known:
            reason = self.file.problem or f"{self.file.path} is read once it does not change"
            raise ExpectedUnread(f"no list of expected hosts was read: {reason}")
        self._warm_up.require_over()

    async def refresh(self, slices: TimeSlices) -> None:
        """Call the roll for metrics and the status; to be called now and then."""
        if self.file.path is not None and self._nodes.expected.is_known:
            await slices.run(self.read(Answer(limit=0)))

    def read(self, answer: "Answer") -> Iterator[None]:
        """Call the roll, in steps; nodes may change in between."""
        expected = self._nodes.expected.hosts
        rejected = {each.hostname: each.message for each in self._rejected.latest()}
        for some in chunks(expected.items()):
            for hostname, is_away in some:
                if hostname not in self._nodes.denied:
                    entry = self._directory.entries.get(hostname)
                    answer.add(hostname, self._state(entry, is_away=is_away), entry, rejected)
            yield
        answer.begin_unexpected()
        last = ""
        while others := self._directory.sorted.following(last):
            last = others[-1].hostname
            for entry in others:
                if entry.hostname not in expected:
                    answer.add(entry.hostname, UNEXPECTED, entry, rejected)
            yield
        self._nodes.expected.nodes = answer.known
        self._latest = answer.summary

    def _state(self, entry: KnownNode | None, *, is_away: bool) -> str:
        if is_away:
            return AWAY
        if entry is None or self._freshness.is_due(entry.heard, self._monotonic()):
            return ABSENT
        return PRESENT if entry.stage == FRESH else STALE


class Answer:
    """A roll call in the form of GET /roll-call, with `limit` hosts after `after` at most."""

    def __init__(self, *, after: str = "", limit: int | None = None) -> None:
        self._after, self._limit = after, limit
        self._found: list[tuple[str, str, bytes]] = []  # hostname, list, encoded
        self._room_from = 0
        self._counts: Counter[str] = Counter()
        self._absent: list[str] = []
        self._stale_away = 0
        self.known = 0  # how many of the expected hosts are nodes

    def begin_unexpected(self) -> None:
        """Record that the expected hosts were all added; the others follow, from the first on."""
        self._room_from = len(self._found)

    def add(
        self, hostname: str, state: str, entry: KnownNode | None, rejected: dict[str, str]
    ) -> None:
        """Add the next host by name, of the expected ones or of the others."""
        self._counts[state] += 1
        self.known += entry is not None and state != UNEXPECTED
        self._stale_away += state == AWAY and entry is not None and entry.is_stale
        if state == ABSENT and len(self._absent) < MAX_NAMED:
            self._absent.append(hostname)
        is_full = self._limit is not None and len(self._found) - self._room_from > self._limit
        if state == PRESENT or hostname <= self._after or is_full:
            return
        value: Missing | str = hostname
        if state in (STALE, ABSENT):
            last_seen = None if entry is None else entry.last_update
            value = Missing(hostname=hostname, last_seen=last_seen, rejected=rejected.get(hostname))
        self._found.append((hostname, state, _encode(value)))

    @property
    def summary(self) -> Summary:
        """The counts."""
        return Summary(self._counts, tuple(self._absent), self._stale_away)

    def encoded(self) -> tuple[bytes, str | None]:
        """Return the answer as JSON, and where the next page goes on, if there is one."""
        found = sorted(self._found)
        limit = len(found) if self._limit is None else self._limit
        shown = found[:limit]
        lists = [
            b'"%b":[%b]' % (name.encode(), b",".join([item for _, of, item in shown if of == name]))
            for name in LISTED
        ]
        numbers = self.summary.numbers()
        head = b'"expected":%d,"present":%d' % (numbers["expected"], numbers[PRESENT])
        next_after = shown[-1][0] if len(found) > limit else None
        return b"{%b}" % b",".join([head, *lists]), next_after
