"""The roll call: which of the expected hosts report, and which others do."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from registry.errors import ExpectedUnread, NoRollCall
from registry.nodes.context import RegistryContext
from registry.nodes.directory.directory import Entry
from registry.nodes.directory.expected import chunks
from registry.nodes.directory.freshness import FRESH
from registry.nodes.expected_file import ExpectedFile
from registry.nodes.nodes import Nodes
from registry.nodes.refusals import RefusedHosts
from registry.nodes.warm_up import WarmUp
from registry.responses.time_slices import TimeSlices

PRESENT = "present"
LISTED = STALE, ABSENT, AWAY, UNEXPECTED = "stale", "absent", "away", "unexpected"
STATES = (PRESENT, *LISTED)
# A metric names no more hosts: each is a series.
MAX_NAMED = 100

_encode = msgspec.json.encode


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
        refused: RefusedHosts,
    ) -> None:
        self._directory = context.directory
        self._freshness = context.settings.freshness
        self._monotonic = context.clocks.monotonic
        self._nodes = nodes
        self.file = file
        self._warm_up = warm_up
        self._refused = refused
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
        rejected = {each.hostname: each.message for each in self._refused.latest()}
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

    def _state(self, entry: Entry | None, *, is_away: bool) -> str:
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

    def add(self, hostname: str, state: str, entry: Entry | None, rejected: dict[str, str]) -> None:
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
