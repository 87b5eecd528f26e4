"""What the bucket holds: keys, and values in JSON.

`node.HOSTNAME` is a node. `heard.RUN.GENERATION.NUMBER` are the nodes that a run of a registry has
seen without a change. `ages.RUN-BEGUN.NUMBER` say when each node was last seen,
`ages.begun` and `ages.complete` when all of these were begun and complete. `registry.current` says
that what is stored is current. `registry.format` says how all of this is written, if it is not
format 1.

Within a format, values may get more fields, and the bucket more kinds of keys: what a release does
not know it ignores, and does not keep when it writes the value anew. The document of a node has no
other fields than those of the format. Whatever an earlier release would read wrongly is another
format, which that release rejects.

Each value says by whom it was written (`by`: the run of the registry, and a number), and at which
uptime: for how many seconds registries have run on the bucket.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from clients.message import HostnameInvalid, normalise_hostname
from registry.errors import StoreVersionError
from registry.store.nats.delivery import Message
from registry.store.protocol import Heard, Row

NODE, HEARD, AGES = "node", "heard", "ages"
BEGUN, COMPLETE, CURRENT = "ages.begun", "ages.complete", "registry.current"
FORMAT = "registry.format"
KNOWN_FORMAT, ANOTHER_FORMAT = 1, 0
OPERATION = "KV-Operation"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"
# The most that the value of a message takes, and the most that its headers take beside it.
MAX_VALUE_BYTES = 512 * 1024
HEADERS_BYTES = 512
# A registry may be cut off for this long, and still learns of deletions by their markers.
MARKER_SECONDS = 7 * 86_400


class Written(msgspec.Struct, frozen=True):
    """What every value says. A value written by hand may say nothing."""

    by: str = ""
    uptime: float = 0.0


class StoredNode(Written, frozen=True, kw_only=True):
    """A node; `node` is its document."""

    last_update: int
    address: str
    node: msgspec.Raw


class HeardNodes(Written, frozen=True, kw_only=True):
    """Nodes that were seen: hostname, `last_update` and address of each.

    They were seen as the bucket had them at the sequence `seen`. `name` is that of the
    registry's host, `denied` and `expected` are the digests of its lists of hosts.
    """

    heard: list[Heard]
    seen: int = 0
    name: str = ""
    denied: str = ""
    expected: str = ""

    def unchanged(self, sequence_of: Callable[[str], int]) -> list[Heard]:
        """Return those that nobody had changed since; given the last sequence of each host."""
        return [one for one in self.heard if sequence_of(one[0]) <= self.seen]


class Age(NamedTuple):
    """When a node was last seen, with what was known then."""

    hostname: str
    uptime: float
    last_update: int
    address: str


class Ages(Written, frozen=True, kw_only=True):
    """When some nodes were last seen."""

    ages: list[Age]


class Deletion(Written, frozen=True, kw_only=True):
    """Beside a deletion: whether the node had expired."""

    expired: bool = False


class Current(Written, frozen=True, kw_only=True):
    """What is stored is current, in the bucket that was made at this time."""

    created: str


class Format(Written, frozen=True, kw_only=True):
    """How the bucket is written; ANOTHER_FORMAT if even that cannot be read."""

    format: int = KNOWN_FORMAT

    @property
    def is_known(self) -> bool:
        """Whether this release can read what is in the bucket."""
        return self.format == KNOWN_FORMAT

    def require_known(self, place: object) -> None:
        """Raise StoreVersionError if this release cannot read what is in the bucket."""
        if not self.is_known:
            shown = "another format" if self.format == ANOTHER_FORMAT else f"format {self.format}"
            raise StoreVersionError(
                f"{place} is written in {shown}, this release knows format {KNOWN_FORMAT}: run the"
                " release that wrote it, or a later one"
            )


encode = msgspec.json.Encoder().encode
decode_node = msgspec.json.Decoder(StoredNode).decode
decode_heard = msgspec.json.Decoder(HeardNodes).decode
decode_ages = msgspec.json.Decoder(Ages).decode
decode_current = msgspec.json.Decoder(Current).decode
_decode_deletion = msgspec.json.Decoder(Deletion).decode
_decode_format = msgspec.json.Decoder(Format).decode
_decode_written = msgspec.json.Decoder(Written).decode


def decode_written(data: bytes) -> Written:
    """Return the writer of a value; empty if the value names none."""
    return _decode_written(data) if data else Written()


def decode_format(data: bytes, headers: Mapping[str, str]) -> Format:
    """Return what the message of the format says; without its key, the bucket has the first."""
    if is_deletion(headers):
        return Format()
    try:
        return _decode_format(data)
    except msgspec.MsgspecError:
        return Format(format=ANOTHER_FORMAT)


def decode_deletion(data: bytes) -> Deletion:
    """Return what a deletion says; one by hand says nothing."""
    return _decode_deletion(data) if data else Deletion()


def is_deletion(headers: Mapping[str, str]) -> bool:
    """Return whether a message deletes its key."""
    return OPERATION in headers


def deletion_headers(seconds: int = MARKER_SECONDS) -> dict[str, str]:
    """Return the headers of a message that deletes its key, and is removed itself after a while."""
    return {OPERATION: "DEL", TTL: f"{seconds}s"}


def node_key(hostname: str) -> str:
    """Return the key of a node.

    A hostname is a legal end of a key: lower-case letters, digits, `-`, `_`, and single dots
    between others.
    """
    return f"{NODE}.{hostname}"


def hostname_of(key: str) -> str:
    """Return the hostname of a node's key."""
    return key[len(NODE) + 1 :]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    labels: list[str]
    kv: dict[str, str]


_decode_document = msgspec.json.Decoder(_Document).decode


def row_of(hostname: str, node: StoredNode) -> Row:
    """Return a node as the registry stores it.

    Raises msgspec.ValidationError if it was not written by a registry.
    """
    document = bytes(node.node)
    _decode_document(document)
    plain = document.startswith(b'{"labels":[') and b'],"kv":{' in document
    if not (plain and document.endswith(b"}}") and _is_hostname(hostname)):
        raise msgspec.ValidationError("no registry writes a node like this")
    return Row(hostname, document, node.last_update, node.address)


def _is_hostname(text: str) -> bool:
    try:
        return normalise_hostname(text) == text
    except HostnameInvalid:
        return False


def node_value(row: Row, *, by: str, uptime: float) -> bytes:
    """Return the value of a node."""
    return encode(
        StoredNode(
            by=by,
            uptime=uptime,
            last_update=row.last_update,
            address=row.address,
            node=msgspec.Raw(row.document),
        )
    )


class LoadedNodes:
    """The nodes so far, and the latest uptime of all messages.

    `sequence_of` returns the last sequence of a host's node so far.
    """

    def __init__(self, sequence_of: Callable[[str], int]) -> None:
        self._sequence_of = sequence_of
        self.uptime = 0.0
        self._rows: dict[str, Row] = {}
        self._heard: dict[str, float] = {}

    def stored(self, row: Row, uptime: float) -> None:
        """Keep a node, last seen at an uptime."""
        self._rows[row.hostname] = row
        self._heard[row.hostname] = uptime

    def deleted(self, hostname: str) -> None:
        """Forget a host."""
        self._rows.pop(hostname, None)
        self._heard.pop(hostname, None)

    def heard(self, message: Message) -> None:
        """Take over what was seen nodes that are known."""
        kind = message.key.partition(".")[0]
        if is_deletion(message.headers) or message.key in {BEGUN, COMPLETE}:
            return
        if kind == HEARD:
            batch = decode_heard(message.data)
            for hostname, last_update, address in batch.unchanged(self._sequence_of):
                self._note(hostname, batch.uptime, last_update, address)
        elif kind == AGES:
            for hostname, uptime, last_update, address in decode_ages(message.data).ages:
                # A small message that came before this one may be newer than these ages.
                if uptime > self._heard.get(hostname, uptime):
                    self._note(hostname, uptime, last_update, address)

    def _note(self, hostname: str, uptime: float, last_update: int, address: str) -> None:
        row = self._rows.get(hostname)
        if row is not None:
            self._rows[hostname] = row._replace(last_update=last_update, address=address)
            self._heard[hostname] = uptime

    def rows(self) -> list[Row]:
        """Return all nodes, sorted, with their ages."""
        now = self.uptime
        return [
            row._replace(age=max(0.0, now - self._heard[hostname]))
            for hostname, row in sorted(self._rows.items())
        ]
