"""Every node in memory, by name and by when it was last heard, encoded as it is shown."""

import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b, sha256
from operator import attrgetter
from typing import NamedTuple

import msgspec

from registry.message import Heartbeat, Node
from registry.store.protocol import Row

AGENT_ID = "agent.id"
ENCODED_AGENT_ID = b'"agent.id":'
MAX_BLOCK_ENTRIES = 128
HEAD_BYTES = len(b'{"hostname":"",')
# About a quarter of a mebibyte.
RUNS_PER_PART = 16
TAIL_BYTES = len(b',"last_update":')

_by_hostname = attrgetter("hostname")
_decode = msgspec.json.Decoder(Node).decode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def encode_document(heartbeat: Heartbeat) -> bytes:
    """Encode labels and kv: equal bytes are equal content, whatever the order of the kv."""
    return b'{"labels":%b,"kv":%b}' % (
        _encode_sorted(heartbeat.labels),
        _encode_sorted(heartbeat.kv),
    )


def body_digest(body: bytes) -> bytes:
    """Give what tells a heartbeat's body from the last one; for a small body this is quickest."""
    return sha256(body).digest()


class Entry:
    """What is known of one host.

    `heard` is the monotonic time of its last heartbeat, `digest` that of its last body. `head` is
    the node as JSON, up to the number of `last_update`.
    """

    __slots__ = ("address", "block", "digest", "head", "heard", "hostname", "last_update")

    def __init__(self, row: Row, *, heard: float, digest: bytes = b"") -> None:
        self.hostname = row.hostname
        self.head = b'{"hostname":"%b",%b,"last_update":' % (
            row.hostname.encode(),
            row.document[1:-1],
        )
        self.last_update = row.last_update
        self.heard = heard
        self.address = row.address
        self.digest = digest
        self.block: EntryBlock | None = None

    def encoded(self) -> bytes:
        """Return the node as JSON."""
        return b"%b%d}" % (self.head, self.last_update)

    def row(self) -> Row:
        """Return the node as it is stored."""
        document = b"{%b}" % self.head[len(self.hostname) + HEAD_BYTES : -TAIL_BYTES]
        return Row(self.hostname, document, self.last_update, self.address)

    def agent_id(self) -> str | None:
        """Return the identity of the host's agent, or None if it sent none."""
        return self.node().kv.get(AGENT_ID) if ENCODED_AGENT_ID in self.head else None

    def node(self) -> Node:
        """Return the node, decoded."""
        return _decode(self.encoded())


def entries_from_rows(rows: Iterable[Row], now: float) -> list[Entry]:
    """Return the entries of stored rows; `now` is the monotonic time."""
    return [
        Entry(row._replace(address=sys.intern(row.address)), heard=now - row.age) for row in rows
    ]


class EntryBlock:
    """A run of neighbours in the order of names, joined again only after one of them changed."""

    __slots__ = ("_digest", "_joined", "entries")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._joined: bytes | None = None
        self._digest = b""
        for entry in entries:
            entry.block = self

    def joined(self) -> bytes:
        """Give the entries as JSON, with commas between them."""
        if self._joined is None:
            parts = [b"%b%d}" % (entry.head, entry.last_update) for entry in self.entries]
            self._joined = b",".join(parts)
            self._digest = blake2b(self._joined, digest_size=16).digest()
        return self._joined

    def digest(self) -> bytes:
        """Give a digest of what is joined."""
        self.joined()
        return self._digest

    def invalidate(self) -> None:
        """Forget what was joined."""
        self._joined = None


class EncodedArray(NamedTuple):
    """Nodes as runs of JSON objects with commas between them, and a digest over them."""

    runs: list[bytes]
    digest: bytes

    def body(self) -> bytes:
        """Give the array."""
        return b"[%b]" % b",".join(self.runs)

    def parts(self) -> list[bytes]:
        """Give the array, in pieces of a good size to send."""
        parts: list[bytes] = []
        for start in range(0, len(self.runs), RUNS_PER_PART):
            parts += [b"," if parts else b"[", b",".join(self.runs[start : start + RUNS_PER_PART])]
        return [*parts, b"]"] if parts else [b"[]"]


class Directory:
    """Nodes sorted by hostname; iterating gives those not heard of for longest first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._blocks: list[EntryBlock] = []
        self._firsts: list[str] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, hostname: str) -> Entry | None:
        """Give the entry of a host, if it is known."""
        return self._entries.get(hostname)

    def fill(self, entries: Iterable[Entry]) -> None:
        """Take in a whole fleet at once, replacing what was there."""
        ordered = sorted(entries, key=_by_hostname)
        size = MAX_BLOCK_ENTRIES // 2
        self._blocks = [EntryBlock(ordered[i : i + size]) for i in range(0, len(ordered), size)]
        self._firsts = [block.entries[0].hostname for block in self._blocks]
        ordered.sort(key=attrgetter("heard"))
        self._entries = OrderedDict((entry.hostname, entry) for entry in ordered)

    def add(self, entry: Entry) -> None:
        """Take in a new host; it counts as heard last."""
        self._entries[entry.hostname] = entry
        if not self._blocks:
            self._blocks, self._firsts = [EntryBlock([entry])], [entry.hostname]
            return
        at = max(bisect_right(self._firsts, entry.hostname) - 1, 0)
        block = self._blocks[at]
        entries = block.entries
        entries.insert(bisect_right(entries, entry.hostname, key=_by_hostname), entry)
        entry.block = block
        block.invalidate()
        self._firsts[at] = entries[0].hostname
        if len(entries) > MAX_BLOCK_ENTRIES:
            self._split(at)

    def _split(self, at: int) -> None:
        entries = self._blocks[at].entries
        middle = len(entries) // 2
        self._blocks[at : at + 1] = [EntryBlock(entries[:middle]), EntryBlock(entries[middle:])]
        self._firsts[at : at + 1] = [entries[0].hostname, entries[middle].hostname]

    def heard(self, entry: Entry, *, last_update: int, heard: float) -> None:
        """Note that a host was heard of, now."""
        entry.heard = heard
        self._entries.move_to_end(entry.hostname)
        if entry.last_update != last_update:
            entry.last_update = last_update
            self.invalidate(entry)

    def invalidate(self, entry: Entry) -> None:
        """Note that what is shown of a host is no longer what was shown before."""
        if entry.block is not None:
            entry.block.invalidate()

    def remove(self, hostname: str) -> Entry | None:
        """Forget a host."""
        entry = self._entries.pop(hostname, None)
        if entry is None:
            return None
        at = bisect_right(self._firsts, hostname) - 1
        block = self._blocks[at]
        block.entries.remove(entry)
        block.invalidate()
        if block.entries:
            self._firsts[at] = block.entries[0].hostname
        else:
            del self._blocks[at], self._firsts[at]
        return entry

    def put(self, entry: Entry, *, heard: float) -> bool:
        """Take in a host, or what is new of it; True if it was not known."""
        known = self._entries.get(entry.hostname)
        if known is None:
            entry.heard = heard
            self.add(entry)
            return True
        known.head, known.digest, known.address = entry.head, entry.digest, entry.address
        self.invalidate(known)
        self.heard(known, last_update=entry.last_update, heard=heard)
        return False

    def select(self, predicate: Callable[[Entry], bool]) -> EncodedArray:
        """Give the nodes that pass the test, in the order of their names."""
        runs = [
            entry.encoded() for block in self._blocks for entry in block.entries if predicate(entry)
        ]
        digest = blake2b(digest_size=16)
        for run in runs:
            digest.update(run)
        return EncodedArray(runs, digest.digest())

    def listing(self) -> EncodedArray:
        """Give all nodes, in the order of their names."""
        runs = [block.joined() for block in self._blocks]
        digest = blake2b(b"".join([block.digest() for block in self._blocks]), digest_size=16)
        return EncodedArray(runs, digest.digest())
