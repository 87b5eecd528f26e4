"""The SQL of a batch of operations."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple, TypeVar

from registry.store.protocol import Row, name_digest
from registry.store.sqlite.heard_log import Entries, HeardLog, Repeated
from registry.store.sqlite.schema import checksum

# Each statement releases the GIL and has to get it back from the busy event loop, so many rows
# share one. It has room for a power of two of rows, so that few prepared statements are needed.
MAX_ROWS_IN_STATEMENT = 128
# Each prepared statement keeps a copy of what was bound to it last. So larger documents do not
# share one, and the copies take at most 4 MiB together, and one large document.
MAX_SHARED_DOCUMENT_BYTES = 16 * 1024
UNUSED_ROW = (None,) * 6
# What an operation may write besides its own bytes: pages of the tree, and of what it frees.
PAGES_BYTES = 16 * 1024
BYTES_PER_TOUCH = 128

T = TypeVar("T")


class Touch(NamedTuple):
    """Hosts that were heard of, and the ages to repeat with them in the log."""

    heard: Entries
    repeated: Repeated | None


# A row to keep, a host to forget, hosts that were heard of.
Operation = Row | str | Touch


def size_of(operation: Operation) -> int:
    """Return how many bytes an operation may add to the database, roughly and rather too many."""
    if isinstance(operation, Row):
        return len(operation.document) + PAGES_BYTES
    if isinstance(operation, Touch):
        return BYTES_PER_TOUCH * len(operation.heard.names) + PAGES_BYTES
    return PAGES_BYTES


class Batch:
    """The rows to write for many operations, of which later ones replace earlier ones.

    A changed node is one row of `node`. Nodes that were only heard of are one row of `heard_log`
    for each operation. Where both have the same uptime, that of `node` counts.
    """

    def __init__(self, operations: Sequence[Operation], uptime: float) -> None:
        self._uptime = uptime
        self._nodes: dict[str, Row] = {}
        self._deleted: dict[str, None] = {}
        self._touches: list[Touch] = []
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        if isinstance(operation, Row):
            hostname = operation.hostname
            self._deleted.pop(hostname, None)
            self._nodes[hostname] = operation
        elif isinstance(operation, str):
            self._deleted[operation] = None
            self._nodes.pop(operation, None)
        else:
            self._touches.append(operation)
            if self._nodes:
                self._touch_nodes(operation.heard)

    def _touch_nodes(self, heard: Entries) -> None:
        """Update the rows of nodes that were heard of after they had changed."""
        positions = {name: position for position, name in enumerate(heard.names)}
        for hostname, row in self._nodes.items():
            position = positions.get(name_digest(hostname))
            if position is not None:
                self._nodes[hostname] = row._replace(
                    last_update=heard.last_updates[position],
                    address=heard.addresses.get(position, row.address),
                )

    def apply(self, connection: sqlite3.Connection, log: HeardLog) -> None:
        """Write everything in the transaction that is open.

        Raises sqlite3.Error, ValueError, OverflowError.
        """
        uptime = self._uptime
        _delete(connection, sorted(self._deleted))
        _replace(connection, (row for _, row in sorted(self._nodes.items())), uptime)
        for touch in self._touches:
            if touch.repeated is not None:
                log.repeat(connection, touch.repeated)
            if touch.heard.names:
                log.append(connection, touch.heard, uptime)
                log.remove_some(connection)
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])


def _delete(connection: sqlite3.Connection, hostnames: Sequence[str]) -> None:
    for some in _in_statements(hostnames):
        room = _room_for(len(some))
        connection.execute(_deletion(room), [*some, *[None] * (room - len(some))])


def _replace(connection: sqlite3.Connection, rows: Iterable[Row], uptime: float) -> None:
    shared: list[tuple[object, ...]] = []
    for row in rows:
        name, document = row.hostname, row.document
        columns = name, document, checksum(name, document), row.last_update, uptime, row.address
        if len(document) > MAX_SHARED_DOCUMENT_BYTES:
            connection.execute(_replacement(1), columns)
        else:
            shared.append(columns)
    for some in _in_statements(shared):
        room = _room_for(len(some))
        unused = UNUSED_ROW * (room - len(some))
        connection.execute(_replacement(room), [*chain.from_iterable(some), *unused])


def _in_statements(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows of each statement."""
    for start in range(0, len(rows), MAX_ROWS_IN_STATEMENT):
        yield rows[start : start + MAX_ROWS_IN_STATEMENT]


def _room_for(rows: int) -> int:
    """Return for how many rows a statement has room that takes these: the next power of two."""
    return 1 << (rows - 1).bit_length()


@cache
def _deletion(room: int) -> str:
    """Return a statement that deletes this many hosts. NULL is the name of none."""
    return " ".join(["DELETE FROM node WHERE hostname IN", f"({','.join('?' * room)})"])


@cache
def _replacement(room: int) -> str:
    """Return a statement that writes this many rows. Those whose hostname is NULL are left out."""
    rows = ",".join(["(?,?,?,?,?,?)"] * room)
    return " ".join(
        ["INSERT OR REPLACE INTO node SELECT * FROM", f"(VALUES {rows})", "WHERE column1 NOT NULL"]
    )
