"""The last changes of nodes, from which an interrupted watch resumes."""

import re
from collections.abc import Callable
from secrets import token_hex
from typing import Literal, NamedTuple

from registry.nodes.directory import labels_start
from registry.nodes.events import Change, ChangeKind

MIN_CHANGES = 10_000
MAX_BYTES = 32 * 1024 * 1024
MAX_BYTES_AT_ONCE = 128 * 1024
# To free some thousands at once would hold up the loop for milliseconds.
MAX_DROPPED_AT_ONCE = 100

ID = re.compile(
    r"(?P<run>[0-9a-f]{8})-(?P<number>[0-9]{1,18})(-(?P<listed>[a-z0-9._-]{0,253})(?P<again>\+)?)?"
)

EventKind = Literal["node", "gone", "stale", "fresh"]
EVENT_KINDS: dict[ChangeKind, EventKind] = {
    ChangeKind.ADDED: "node",
    ChangeKind.CHANGED: "node",
    ChangeKind.STALE: "stale",
    ChangeKind.FRESH: "fresh",
    ChangeKind.DELETED: "gone",
    ChangeKind.EXPIRED: "gone",
}
FOLLOWED = frozenset(EVENT_KINDS)


class PastChange(NamedTuple):
    """A change of a node: `head` and `last_update` are the node, `before` what it replaced."""

    kind: EventKind
    hostname: str
    head: bytes
    last_update: int
    before: bytes | None

    def kind_for(self, matches: Callable[[bytes, int], bool]) -> EventKind | None:
        """Return the event for a client that watches the nodes that match; None if there is none.

        For that client, a node that no longer matches is gone.
        """
        start = labels_start(self.hostname)
        if matches(self.head, start):
            return self.kind
        if self.kind == "node" and self.before is not None and matches(self.before, start):
            return "gone"
        return None


class Position(NamedTuple):
    """The place that a watch has reached: all changes up to `number` were sent.

    `listed` is the hostname up to which the nodes were sent before; None if all were. With `again`,
    that node itself was not sent completely.
    """

    number: int
    listed: str | None = None
    again: bool = False


class ChangeHistory:
    """The last changes, numbered from 1; fewer than 10,000 only where they are large.

    An id is a position as text, with the name of this run of the registry.
    """

    def __init__(self, *, min_changes: int = MIN_CHANGES, max_bytes: int = MAX_BYTES) -> None:
        self._run = token_hex(4)
        self._min_changes = min_changes
        self._max_bytes = max_bytes
        # Plain tuples, as the garbage collector looks at them once only.
        self._changes: list[tuple[EventKind, str, bytes, int, bytes | None]] = []
        self._bytes = 0
        self._dropped = 0

    @property
    def last(self) -> int:
        """Return the number of the last change."""
        return self._dropped + len(self._changes)

    def record(self, change: Change) -> None:
        """Keep a change; subscribes to the kinds in FOLLOWED."""
        node = change.node
        kind = EVENT_KINDS[change.kind]
        self._changes.append((kind, node.hostname, node.head, node.last_update, change.before))
        self._bytes += len(node.head) + len(change.before or b"")
        if len(self._changes) >= self._min_changes + MAX_DROPPED_AT_ONCE:
            self._drop(MAX_DROPPED_AT_ONCE)
        while self._bytes > self._max_bytes:
            self._drop(1)

    def after(self, number: int, limit: int) -> list[PastChange] | None:
        """Return the next changes after a number, at most `limit`; None if it is too old.

        There are fewer where they are large.
        """
        start = number - self._dropped
        if start < 0:
            return None
        found: list[PastChange] = []
        size = 0
        for change in self._changes[start : start + limit]:
            found.append(PastChange(*change))
            size += len(found[-1].head)
            if size > MAX_BYTES_AT_ONCE:
                break
        return found

    def id_of(self, position: Position) -> str:
        """Return the id of a position."""
        text = f"{self._run}-{position.number}"
        if position.listed is None:
            return text
        return f"{text}-{position.listed}{'+' if position.again else ''}"

    def position_of(self, text: str) -> Position | None:
        """Return the position of an id; None if a watch cannot resume there."""
        match = ID.fullmatch(text)
        if match is None or match["run"] != self._run:
            return None
        number = int(match["number"])
        if not self._dropped <= number <= self.last:
            return None
        return Position(number, match["listed"], again=match["again"] is not None)

    def _drop(self, count: int) -> None:
        self._bytes -= sum(
            len(head) + len(before or b"") for _, _, head, _, before in self._changes[:count]
        )
        del self._changes[:count]
        self._dropped += count
