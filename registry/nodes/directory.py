"""Every node in memory: by hostname, by the time it was last seen, and as it is shown."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from clients.message import Heartbeat, Node
from registry.responses.blocks import BlockItem, SortedBlocks
from registry.store.protocol import Row, name_digest

# Marking or forgetting this many takes well under a millisecond.
MAX_AT_ONCE = 20
# How long a node has been silent: whether it is stale, due to expire soon, or due by now. A
# host that is expected is kept instead of both.
STAGES = FRESH, STALE, KEPT, SOON, DUE = range(5)
AGENT_ID = "agent.id"
AGENT_INSTANCE = "agent.instance"
IDENTITY_CHARS_SHOWN = 8
MAX_BLOCK_NODES = 128
LIST_FORM = "list"  # what a block keeps of its nodes for the next list
# What all blocks keep for it. Those beyond are encoded for each list.
MAX_KEPT_BYTES = 16 * 1024 * 1024
HEAD_BYTES = len(b'{"hostname":"",')
LABELS_OFFSET = HEAD_BYTES + len(b'"labels":')
TAIL_BYTES = len(b',"last_update":')
# Longer numbers of apps are none.
MAX_DIGITS = 9
# No string can hold it. It is searched for from the end, since to pass over many labels takes
# longer than over large kv.
END_OF_LABELS = b'],"kv":{'
BACKSLASH = ord("\\")
SERVING = b'"serving:'
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

_decode = msgspec.json.Decoder(Node).decode
_encode = msgspec.json.encode
_decode_labels = msgspec.json.Decoder(list[str]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Linked(Protocol):
    """An item of AgeOrder. It links to the items seen before and after it.

    `heard` is the time.
    """

    heard: float
    older: Self | None
    newer: Self | None


T = TypeVar("T", bound=Linked)


class AgeOrder(Generic[T]):
    """Nodes in the order in which they were last seen, as a linked list.

    A node moves to the end at each heartbeat. That touches its neighbours alone, which are seen
    at about the same time, so that they are in the processor's cache also among a million nodes. A
    dictionary of all nodes would be copied whenever it grows: with a hundred thousand nodes, that
    takes up to 10 ms.
    """

    def __init__(self) -> None:
        self._oldest: T | None = None
        self._newest: T | None = None
        self._count = 0
        self._walk: T | None = None  # the next one of heard_until

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        node = self._oldest
        while node is not None:
            yield node
            node = node.newer

    def oldest(self, choose: Callable[[T], bool | None]) -> list[T]:
        """Return at most MAX_AT_ONCE nodes that `choose` accepts, the oldest first.

        `choose` returns True to accept a node, None to leave it out, and False to stop there.
        """
        chosen: list[T] = []
        for node in self:
            verdict = choose(node)
            if verdict is False or len(chosen) == MAX_AT_ONCE:
                break
            if verdict:
                chosen.append(node)
        return chosen

    def until(self, time: float) -> list[T]:
        """Return at most MAX_AT_ONCE nodes that were not seen after a time, oldest first."""
        found: list[T] = []
        node = self._oldest
        while node is not None and node.heard <= time and len(found) < MAX_AT_ONCE:
            found.append(node)
            node = node.newer
        return found

    def heard_until(self, time: float) -> Iterator[T]:
        """Yield the nodes that were not seen after a time, the oldest first.

        Nodes may move in between; those that are seen meanwhile may be left out. Only one such
        iterator may be in use.
        """
        self._walk = self._oldest
        while (node := self._walk) is not None and node.heard <= time:
            self._walk = node.newer
            yield node
        self._walk = None

    def add(self, node: T) -> None:
        """Add a node that was seen later than all others; it is in no other AgeOrder."""
        newest = self._newest
        if newest is None:
            self._oldest = node
        else:
            newest.newer = node
        node.older = newest
        self._newest = node
        self._count += 1

    def move_to_end(self, node: T) -> None:
        """Move a node that is here, and was seen later than all others by now, to the end."""
        older, newer, newest = node.older, node.newer, self._newest
        if newer is None or newest is None:
            return
        if node is self._walk:
            self._walk = newer
        if older is None:
            self._oldest = newer
        else:
            older.newer = newer
        newer.older = older
        node.older, node.newer = newest, None
        newest.newer = self._newest = node

    def insert(self, nodes: Iterable[T]) -> None:
        """Add nodes where their times belong; they are in no other AgeOrder."""
        before = self._newest
        for node in sorted(nodes, key=attrgetter("heard"), reverse=True):
            while before is not None and before.heard > node.heard:
                before = before.older
            self._insert_after(before, node)

    def _insert_after(self, before: T | None, node: T) -> None:
        after = self._oldest if before is None else before.newer
        node.older, node.newer = before, after
        if before is None:
            self._oldest = node
        else:
            before.newer = node
        if after is None:
            self._newest = node
        else:
            after.older = node
        self._count += 1

    def remove(self, node: T) -> None:
        """Remove a node that is here."""
        older, newer = node.older, node.newer
        if node is self._walk:
            self._walk = newer
        if older is None:
            self._oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self._newest = older
        else:
            newer.older = older
        node.older = node.newer = None
        self._count -= 1


def encode_document(heartbeat: Heartbeat) -> bytes:
    """Encode labels and kv. Equal content gives equal bytes, whatever the order of the kv."""
    return b'{"labels":%b,"kv":%b}' % (
        _encode_sorted(heartbeat.labels),
        _encode_sorted(heartbeat.kv),
    )


def abbreviated(identity: str | None) -> str:
    """Return the first characters of an identity, which tell hosts apart.

    Whoever knows all of it can pass for the host, and the holder of a key for many hosts gets
    messages about each of them.
    """
    text = identity or ""
    return ascii(text[:IDENTITY_CHARS_SHOWN]) + ("..." if text[IDENTITY_CHARS_SHOWN:] else "")


class KnownNode(BlockItem):
    """A host as the registry knows it.

    `heard` is the monotonic time of its last heartbeat, `digest` that of its last body. `head` is
    the node as JSON, up to the number of `last_update`. `older` and `newer` are its neighbours by
    `heard`, among those in the same `stage`. `apps_down` and `stage` are kept by the directory,
    `is_touched` by Writes, `is_moved` (see HeardNode) by Applied. `name_digest` is
    set when the directory adds the entry; one that only replaces the content of another has none.
    """

    name_digest: bytes

    __slots__ = (
        "address",
        "apps_down",
        "digest",
        "head",
        "heard",
        "hostname",
        "is_moved",
        "is_touched",
        "last_update",
        "name_digest",
        "newer",
        "older",
        "stage",
    )

    def __init__(self, row: Row, *, heard: float, digest: bytes = b"") -> None:
        self.block = None
        self.hostname = row.hostname
        self.head = b'{"hostname":"%b",%b,"last_update":' % (
            row.hostname.encode(),
            row.document[1:-1],
        )
        self.last_update = row.last_update
        self.heard = heard
        self.address = row.address
        self.digest = digest
        self.stage = FRESH
        self.is_touched = False
        self.is_moved = row.is_moved
        self.apps_down = False
        self.older: KnownNode | None = None
        self.newer: KnownNode | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the node was marked as stale, however long ago."""
        return self.stage != FRESH

    def labels_start(self) -> int:
        """Return where in `head` the array of labels begins."""
        return labels_start(self.hostname)

    def encoded(self, *, address: bool = False) -> bytes:
        """Return the node as JSON; with its address, if that is asked for."""
        if not address:
            return b"%b%d}" % (self.head, self.last_update)
        return self.head + node_tail(self.last_update, self.address)

    def row(self) -> Row:
        """Return the node as it is stored."""
        document = b"{%b}" % self.head[len(self.hostname) + HEAD_BYTES : -TAIL_BYTES]
        return Row(self.hostname, document, self.last_update, self.address)

    def has_apps_down(self) -> bool:
        """Return whether the host's kv names apps that do not run, or are unhealthy.

        Apps that were stopped on purpose are not down; an older agent does not tell of them.
        """
        start = self.head.find(b'"apps.', self.head.rindex(END_OF_LABELS))
        if start < 0:
            return False
        if self._number("apps.unhealthy", start) > 0:
            return True
        running = self._number("apps.running", start)
        stopped = max(self._number("apps.stopped", start), 0)
        return 0 <= running < self._number("apps.total", start) - stopped

    def _number(self, key: str, start: int) -> int:
        """Return the number that a key in kv has, -1 if that is none; see ``text``."""
        text = self.text(key, start) or ""
        return int(text) if len(text) < MAX_DIGITS and text.isascii() and text.isdigit() else -1

    def text(self, key: str, start: int | None = None) -> str | None:
        """Return the text of a key in kv. The node itself is never decoded: it may be large.

        The key is looked for from `start` on, or from the beginning of kv. It needs no escapes. It
        may also be the end of a longer key, after a quotation mark, which has a backslash.
        """
        head, mark = self.head, b'"%b":"' % key.encode()
        found = head.find(mark, head.rindex(END_OF_LABELS) if start is None else start)
        while found >= 0 and head[found - 1] == BACKSLASH:
            found = head.find(mark, found + 1)
        if found < 0:
            return None
        begin = found + len(mark)
        text = head[begin : head.index(b'"', begin)]
        if b"\\" not in text:
            return text.decode()
        string = _STRING.match(head, begin - 1)
        return None if string is None else _decode_text(string[0])

    def node(self) -> Node:
        """Return the node, decoded."""
        return _decode(self.encoded())


def node_tail(last_update: int, address: str | None) -> bytes:
    """Return what follows the `head` of an encoded node; None shows no address."""
    if address is None:
        return b"%d}" % last_update
    return b'%d,"address":%b}' % (last_update, _encode(address))


def labels_start(hostname: str) -> int:
    """Return where in the `head` of a host the array of labels begins."""
    return len(hostname) + LABELS_OFFSET


def only_withdraws(before: bytes, after: bytes) -> bool:
    """Return whether the `head` of a node differs by nothing but missing labels `serving:`."""
    if SERVING not in before or len(after) >= len(before):
        return False
    end, new_end = before.rindex(END_OF_LABELS), after.rindex(END_OF_LABELS)
    if before[end:] != after[new_end:]:
        return False
    labels, left = _labels(before, end), _labels(after, new_end)
    present = set(left)
    is_same_order = left == [each for each in labels if each in present]
    gone = (each for each in labels if each not in present)
    return is_same_order and all(each.startswith("serving:") for each in gone)


def _labels(head: bytes, end: int) -> list[str]:
    """Return the labels in a `head`, whose array ends at `end`."""
    return _decode_labels(head[head.index(b'"labels":') + len(b'"labels":') : end + 1])


def entries_from_rows(rows: Iterable[Row], now: float) -> list[KnownNode]:
    """Return the entries of stored rows; `now` is the monotonic time."""
    return [
        KnownNode(row._replace(address=sys.intern(row.address)), heard=now - row.age)
        for row in rows
    ]


class Directory:
    """All nodes: sorted by hostname, and in the order in which they were seen.

    Nodes of each stage are kept apart, in `stages`, so that they are counted without looking at
    them; `fresh` are those that are not marked as stale.
    """

    def __init__(self, *, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self.max_kept_bytes = max_kept_bytes
        self.version = 0  # another one after each change that lists show, but for addresses
        self.replaced_bytes = 0  # of encoded nodes that were replaced or removed so far
        self.kept_bytes = 0  # what blocks keep for the next list
        self.apps_down = 0  # how many nodes tell of apps that do not run or are unhealthy
        self.entries: dict[str, KnownNode] = {}
        self.stages = [AgeOrder[KnownNode]() for _ in STAGES]
        self.fresh = self.stages[FRESH]
        self.sorted = SortedBlocks[KnownNode](key=attrgetter("hostname"), max_items=MAX_BLOCK_NODES)

    def __len__(self) -> int:
        return len(self.entries)

    def fill(self, entries: Iterable[KnownNode]) -> None:
        """Add these entries, of which no two have the same hostname, to an empty directory.

        It may run in a thread, as long as nobody else uses the directory.
        """
        self.sorted.fill(sorted(entries, key=attrgetter("hostname")))
        for entry in sorted(self.sorted, key=attrgetter("heard")):
            self._add(entry)

    def put(self, entry: KnownNode, *, heard: float) -> bytes | None:
        """Add or replace a host; return its former `head`, None if it is new.

        `heard` is the monotonic time, at or after that of all other nodes, within a millisecond.
        """
        known = self.entries.get(entry.hostname)
        if known is None:
            entry.heard = heard
            self._add(entry)
            self.sorted.put(entry)
            return None
        before = known.head
        self.version += 1
        self.replaced_bytes += len(before)
        known.head, known.digest, known.address = entry.head, entry.digest, entry.address
        known.is_moved = False
        if known.block is not None:
            known.block.invalidate(known)
        self._count_apps_down(known, is_down=known.has_apps_down())
        self.heard(known, last_update=entry.last_update, heard=heard)
        return before

    def _add(self, entry: KnownNode) -> None:
        """Add a host that was seen later than all others, but for the sorted list."""
        entry.name_digest = name_digest(entry.hostname)
        self.version += 1
        self.entries[entry.hostname] = entry
        self.fresh.add(entry)
        self._count_apps_down(entry, is_down=entry.has_apps_down())

    def heard(self, entry: KnownNode, *, last_update: int, heard: float) -> bool:
        """Record that a host was seen now; return whether it was marked as stale.

        `heard` is the monotonic time, at or after that of all other nodes, within a millisecond.
        """
        entry.heard = heard
        self.update_time(entry, last_update)
        if entry.stage == FRESH:
            self.fresh.move_to_end(entry)
            return False
        self.stages[entry.stage].remove(entry)
        entry.stage = FRESH
        self.fresh.add(entry)
        return True

    def update_time(self, entry: KnownNode, last_update: int) -> None:
        """Set the Unix time of a host's last heartbeat, which lists show."""
        entry.last_update = last_update
        self.version += 1
        if entry.block is not None and entry.block.runs:
            entry.block.drop(LIST_FORM)

    def heard_before(
        self, times: Sequence[tuple[KnownNode, float]], stage_of: Callable[[float], int]
    ) -> list[KnownNode]:
        """Record when hosts were seen elsewhere; return those that are stale no more.

        A node reaches no later stage by that: this is left to Ages, which is published.
        """
        revived: list[KnownNode] = []
        for entry, heard in times:
            self.stages[entry.stage].remove(entry)
            entry.heard = heard
            stage = min(entry.stage, stage_of(heard))
            if entry.stage != FRESH == stage:
                revived.append(entry)
            entry.stage = stage
        for stage, order in enumerate(self.stages):
            order.insert(entry for entry, _ in times if entry.stage == stage)
        return revived

    def heard_until(self, time: float) -> Iterator[KnownNode]:
        """Yield the nodes that were not seen after a monotonic time, while nodes may change.

        Only one such iterator may be in use.
        """
        for order in self.stages:  # the later ones later, since nodes move there meanwhile
            yield from order.heard_until(time)

    def move(self, entries: Sequence[KnownNode], stage: int) -> None:
        """Move hosts to another stage."""
        for entry in entries:
            self.stages[entry.stage].remove(entry)
            entry.stage = stage
        self.stages[stage].insert(entries)

    def remove(self, hostname: str) -> KnownNode | None:
        """Forget a host; return its entry, or None if it is unknown."""
        entry = self.entries.pop(hostname, None)
        if entry is not None:
            self.version += 1
            self.replaced_bytes += len(entry.head)
            self.stages[entry.stage].remove(entry)
            self.sorted.remove(hostname)
            self._count_apps_down(entry, is_down=False)
        return entry

    def _count_apps_down(self, entry: KnownNode, *, is_down: bool) -> None:
        self.apps_down += is_down - entry.apps_down
        entry.apps_down = is_down
