"""Every node in memory: by hostname, by the time it was last heard of, and as it is shown."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from operator import attrgetter

import msgspec

from registry.message import Heartbeat, Node
from registry.nodes.encoding import EncodedArray, EncodedRun, join_runs, join_values
from registry.nodes.sorted_blocks import Block, BlockItem, SortedBlocks
from registry.store.protocol import Row

AGENT_ID = "agent.id"
AGENT_INSTANCE = "agent.instance"
MAX_BLOCK_NODES = 128
HEAD_BYTES = len(b'{"hostname":"",')
TAIL_BYTES = len(b',"last_update":')
LISTED = "listed"  # the one form in which blocks of nodes are encoded

BACKSLASH = ord("\\")

_decode = msgspec.json.Decoder(Node).decode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def encode_document(heartbeat: Heartbeat) -> bytes:
    """Encode labels and kv. Equal content gives equal bytes, whatever the order of the kv."""
    return b'{"labels":%b,"kv":%b}' % (
        _encode_sorted(heartbeat.labels),
        _encode_sorted(heartbeat.kv),
    )


def body_digest(body: bytes) -> bytes:
    """Return what a body is compared by. Of small bodies, SHA-256 is the quickest digest."""
    return sha256(body).digest()


class Entry(BlockItem):
    """What is known of one host.

    `heard` is the monotonic time of its last heartbeat, `digest` that of its last body. `head` is
    the node as JSON, up to the number of `last_update`.
    """

    __slots__ = ("address", "digest", "head", "heard", "hostname", "last_update")

    def __init__(self, row: Row, *, heard: float, digest: bytes = b"") -> None:
        super().__init__()
        self.hostname = row.hostname
        self.head = b'{"hostname":"%b",%b,"last_update":' % (
            row.hostname.encode(),
            row.document[1:-1],
        )
        self.last_update = row.last_update
        self.heard = heard
        self.address = row.address
        self.digest = digest

    def encoded(self) -> bytes:
        """Return the node as JSON."""
        return b"%b%d}" % (self.head, self.last_update)

    def row(self) -> Row:
        """Return the node as it is stored."""
        document = b"{%b}" % self.head[len(self.hostname) + HEAD_BYTES : -TAIL_BYTES]
        return Row(self.hostname, document, self.last_update, self.address)

    def agent_id(self) -> str | None:
        """Return the identity of the host's agent, or None if it sent none."""
        return self._value(AGENT_ID, b'"agent.id":"')

    def agent_instance(self) -> str | None:
        """Return the instance of the host's agent, or None if it sent none."""
        return self._value(AGENT_INSTANCE, b'"agent.instance":"')

    def _value(self, key: str, mark: bytes) -> str | None:
        """Return the text of a key in kv. The node is decoded only where backslashes are near.

        `mark` is how the key and its text begin, encoded. Only the end of another key looks like
        it, after a quotation mark of its own, which has a backslash.
        """
        head = self.head
        found = head.find(mark)
        if found < 0:
            return None
        start = found + len(mark)
        text = head[start : head.index(b'"', start)]
        if head[found - 1] == BACKSLASH or b"\\" in text:
            return self.node().kv.get(key)
        return text.decode()

    def node(self) -> Node:
        """Return the node, decoded."""
        return _decode(self.encoded())


def entries_from_rows(rows: Iterable[Row], now: float) -> list[Entry]:
    """Return the entries of stored rows; `now` is the monotonic time."""
    return [
        Entry(row._replace(address=sys.intern(row.address)), heard=now - row.age) for row in rows
    ]


class Directory:
    """All nodes, sorted by hostname. Iteration starts with the one not heard of for longest."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._sorted = SortedBlocks[Entry](key=attrgetter("hostname"), max_items=MAX_BLOCK_NODES)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, hostname: str) -> Entry | None:
        """Return the entry of a host, or None if it is unknown."""
        return self._entries.get(hostname)

    def fill(self, entries: Iterable[Entry]) -> None:
        """Replace everything by these entries, of which no two have the same hostname."""
        self._sorted.fill(sorted(entries, key=attrgetter("hostname")))
        by_age = sorted(self._sorted, key=attrgetter("heard"))
        self._entries = OrderedDict((entry.hostname, entry) for entry in by_age)

    def put(self, entry: Entry, *, heard: float) -> bool:
        """Add a host, or replace what is known of it; return True if it was unknown.

        `heard` is the monotonic time, at or after that of all other nodes.
        """
        known = self._entries.get(entry.hostname)
        if known is None:
            entry.heard = heard
            self._entries[entry.hostname] = entry
            self._sorted.put(entry)
            return True
        known.head, known.digest, known.address = entry.head, entry.digest, entry.address
        known.invalidate_block()
        self.heard(known, last_update=entry.last_update, heard=heard)
        return False

    def heard(self, entry: Entry, *, last_update: int, heard: float) -> None:
        """Note that a host was heard of at the monotonic time `heard`, the latest of all."""
        entry.heard = heard
        self._entries.move_to_end(entry.hostname)
        if entry.last_update != last_update:
            entry.last_update = last_update
            entry.invalidate_block()

    def remove(self, hostname: str) -> Entry | None:
        """Forget a host; return its entry, or None if it is unknown."""
        if self._entries.pop(hostname, None) is None:
            return None
        return self._sorted.remove(hostname)

    def select(self, predicate: Callable[[Entry], bool]) -> EncodedArray:
        """Return the nodes that pass, sorted by hostname."""
        return join_runs(
            [
                join_values([entry.encoded() for entry in block.items if predicate(entry)])
                for block in self._sorted.blocks()
            ]
        )

    def listing(self) -> EncodedArray:
        """Return all nodes, sorted by hostname."""
        return join_runs([_run_of(block) for block in self._sorted.blocks()])


def _run_of(block: Block[Entry]) -> EncodedRun:
    run = block.runs.get(LISTED)
    if run is None:
        entries = [b"%b%d}" % (entry.head, entry.last_update) for entry in block.items]
        run = block.runs[LISTED] = join_values(entries)
    return run
