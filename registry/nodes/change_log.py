"""The last changes of nodes, from which an interrupted watch resumes."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from secrets import token_hex
from typing import Literal, NamedTuple

import msgspec

from registry.nodes.changes import ChangeKind, NodeChange
from registry.nodes.context import CHANGE_LOG_BYTES
from registry.nodes.directory import labels_start
from registry.store.protocol import StorePosition, name_digest

# What a change takes besides the nodes. So at least 10,000 changes of nodes below 3 KiB are kept,
# and over 100,000 of nodes that become stale.
BYTES_PER_CHANGE = 300
MAX_BYTES_AT_ONCE = 32 * 1024
# To free one at a time would move all others each time; some thousands would hold up the loop.
DROPPED_AT_ONCE = 100

ID = re.compile(
    r"(?P<run>[0-9a-f]{8})-(?P<number>[0-9]{1,18})"
    r"(@(?P<order>[0-9a-f]{8,24})-(?P<sequence>[0-9]{1,18})(~(?P<stale>[0-9a-f]{1,32}))?)?"
    r"(-(?P<listed>[a-z0-9._-]{0,253})(?P<again>\+)?)?"
)

EventKind = Literal["node", "gone", "stale", "fresh"]
PastKind = EventKind | Literal["moved"]
PAST_KINDS: dict[ChangeKind, PastKind] = {
    ChangeKind.ADDED: "node",
    ChangeKind.CHANGED: "node",
    ChangeKind.MOVED: "moved",
    ChangeKind.STALE: "stale",
    ChangeKind.FRESH: "fresh",
    ChangeKind.DELETED: "gone",
    ChangeKind.EXPIRED: "gone",
}
FOLLOWED_KINDS = frozenset(PAST_KINDS)


class PastChange(msgspec.Struct, frozen=True, gc=False):
    """A change of a node: `head` and `last_update` are the node, `before` what it replaced.

    `address` is where its heartbeats came from then. A node that has only `moved` is the same to a
    client that sees no addresses.

    The garbage collector does not know of it. While many nodes expire, more is freed than made, so
    that it does not run; then it would look at all of their changes at once.
    """

    kind: PastKind
    hostname: str
    head: bytes
    last_update: int
    before: bytes | None
    address: str

    def kind_for(
        self, matches: Callable[[bytes, int], bool], *, address: bool = False
    ) -> EventKind | None:
        """Return the event for a client that watches the nodes that match; None if there is none.

        For that client, a node that no longer matches is gone. With `address`, it sees addresses.
        """
        kind = self.kind
        if kind == "moved":
            if not address:
                return None
            kind = "node"
        start = labels_start(self.hostname)
        if matches(self.head, start):
            return kind
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


class ChangeLog:
    """The last changes, numbered from 1: as many as take ``max_bytes``.

    Nodes that the directory has anyway do not count. An id is a position as text, with the name of
    this run of the registry. If several registries share the store, it has the place in the store's
    order, too, by which a watch resumes on another registry. That order names the list of denied
    hosts as well: a registry with another list has sent other nodes. Each registry judges by itself
    which nodes are stale, so the id has a digest of these: where others are stale, none resumes.
    """

    def __init__(
        self,
        max_bytes: int = CHANGE_LOG_BYTES,
        store_position: Callable[[], StorePosition | None] = lambda: None,
    ) -> None:
        self._run = token_hex(4)
        self._max_bytes = max_bytes
        self._store_position = store_position
        self._order = self._denied = ""
        self._shared_from = math.inf  # the first number with a place in the store's order
        self._sequences: list[int] = []  # in the store's order, of each change
        self._dropped_sequence: int | None = None  # up to which changes are not kept
        self._stale: set[str] = set()
        self._stale_digest = self._dropped_stale_digest = 0
        self._stale_digests: list[int] = []  # after each change
        self._changes: list[PastChange] = []
        self._bytes = 0
        self._dropped = 0

    @property
    def first(self) -> int:
        """Return the number after which all changes are kept."""
        return self._dropped

    @property
    def last(self) -> int:
        """Return the number of the last change."""
        return self._dropped + len(self._changes)

    def record(self, change: NodeChange) -> None:
        """Keep a change; subscribes to the kinds in FOLLOWED_KINDS."""
        node = change.node
        recorded = PastChange(
            PAST_KINDS[change.kind],
            node.hostname,
            node.head,
            node.last_update,
            change.before,
            node.address,
        )
        self._note_sequence()
        self._note_stale(recorded)
        self._changes.append(recorded)
        self._bytes += _size(recorded)
        if self._bytes > self._max_bytes:
            self._drop()

    def follow(self, denied: str = "") -> None:
        """Let watches resume on other registries that deny the same hosts, from now on.

        `denied` is the digest of the list. The last change is the first with a place in the store's
        order: some before it are of this registry alone, such as those of hosts that it denies.
        """
        position = self._store_position()
        if position is not None:
            self._denied, self._shared_from = denied, self.last
            self._order, self._dropped_sequence = position
            self._sequences[:] = [position.sequence] * len(self._sequences)

    def _note_sequence(self) -> None:
        position = self._store_position()
        if position is None:
            self._sequences.append(0)
            return
        if position.order != self._order:  # what was before has no place in this one
            self._order = position.order
            self._dropped_sequence = None
            self._sequences[:] = [0] * len(self._sequences)
        self._sequences.append(position.sequence)

    def _note_stale(self, change: PastChange) -> None:
        is_known = change.hostname in self._stale
        if change.kind == "stale" and not is_known:
            self._stale.add(change.hostname)
        elif change.kind in {"fresh", "gone"} and is_known:
            self._stale.remove(change.hostname)
        else:
            self._stale_digests.append(self._stale_digest)
            return
        self._stale_digest ^= int.from_bytes(name_digest(change.hostname))
        self._stale_digests.append(self._stale_digest)

    def _stale_digest_at(self, number: int) -> int:
        """Return the digest of the nodes that were stale after a change."""
        index = number - self._dropped - 1
        return self._stale_digests[index] if index >= 0 else self._dropped_stale_digest

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
            found.append(change)
            size += len(change.head)
            if size > MAX_BYTES_AT_ONCE:
                break
        return found

    def id_of(self, position: Position) -> str:
        """Return the id of a position."""
        text = f"{self._run}-{position.number}{self._shared(position.number)}"
        if position.listed is None:
            return text
        return f"{text}-{position.listed}{'+' if position.again else ''}"

    def position_of(self, text: str, *, address: bool = False) -> Position | None:
        """Return the position of an id; None if a watch cannot resume there.

        With `address`, it is an id of this registry alone: each of those that share a store learns
        at another place in its order that a node has moved.
        """
        match = ID.fullmatch(text)
        if match is None:
            return None
        number: int | None = int(match["number"])
        if match["run"] != self._run:
            if address:
                return None
            number = self._number_at(match["order"], int(match["sequence"] or 0))
            stale = int(match["stale"] or "0", 16)
            if number is not None and self._stale_digest_at(number) != stale:
                return None
        if number is None or not self._dropped <= number <= self.last:
            return None
        return Position(number, match["listed"], again=match["again"] is not None)

    def _shared(self, number: int) -> str:
        """Return the place of a change in the store's order, as text; empty if it has none."""
        if number < self._shared_from:
            return ""
        index = number - self._dropped - 1
        if index >= len(self._sequences):
            return ""
        sequence = self._sequences[index] if index >= 0 else self._dropped_sequence
        if not sequence:
            return ""
        digest = self._stale_digest_at(number)
        return f"@{self._order}{self._denied}-{sequence}{f'~{digest:x}' if digest else ''}"

    def _number_at(self, order: str | None, sequence: int) -> int | None:
        """Return the last change up to a place in the store's order; None if it is not known.

        It is not known either if that place is not reached yet.
        """
        position = self._store_position()
        if position is None or self.last < self._shared_from or self._dropped_sequence is None:
            return None
        if order != self._order + self._denied:
            return None
        if not self._dropped_sequence <= sequence <= position.sequence:
            return None
        return self._dropped + bisect_right(self._sequences, sequence)

    def forget(self) -> None:
        """Drop all changes: a watch that has not taken them begins anew.

        Until `follow`, none resumes on another registry.
        """
        self._shared_from = math.inf
        self._bytes = 0
        if self._changes:
            self._dropped_sequence = self._sequences[-1] or self._dropped_sequence
            self._dropped_stale_digest = self._stale_digest
            self._dropped += len(self._changes)
            self._changes.clear()
            self._sequences.clear()
            self._stale_digests.clear()

    def _drop(self) -> None:
        """Drop changes until there is room for some more."""
        count, wanted = 0, self._max_bytes - DROPPED_AT_ONCE * BYTES_PER_CHANGE
        while self._bytes > wanted and count < len(self._changes):
            self._bytes -= _size(self._changes[count])
            count += 1
        if count and self._sequences[count - 1]:
            self._dropped_sequence = self._sequences[count - 1]
        if count:
            self._dropped_stale_digest = self._stale_digests[count - 1]
        del self._changes[:count], self._sequences[:count], self._stale_digests[:count]
        self._dropped += count


def _size(change: PastChange) -> int:
    """Return the bytes that are kept for a change alone."""
    gone = len(change.head) if change.kind == "gone" else 0
    return BYTES_PER_CHANGE + len(change.before or b"") + gone
