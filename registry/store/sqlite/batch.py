"""The SQL of a batch of operations."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple, TypeVar

from registry.store.protocol import Row, name_digest
from registry.store.sqlite.heard_log import Entries, HeardLog, Repeated
from registry.store.sqlite.schema import checksum

# Rows in one statement. Each step of a statement releases the GIL and has to get it back from the
# busy event loop, so that one statement for each row would wait at each row.
ROWS_PER_STATEMENT = (128, 16, 1)

T = TypeVar("T")


class Touch(NamedTuple):
    """Hosts that were heard of, and the ages to repeat with them in the log."""

    heard: Entries
    repeated: Repeated | None


# A row to keep, a host to forget, hosts that were heard of.
Operation = Row | str | Touch


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
        nodes = [
            (name, row.document, checksum(name, row.document), row.last_update, uptime, row.address)
            for name, row in sorted(self._nodes.items())
        ]
        _replace(connection, nodes)
        for touch in self._touches:
            if touch.repeated is not None:
                log.repeat(connection, touch.repeated)
            if touch.heard.names:
                log.append(connection, touch.heard, uptime)
                log.remove_some(connection)
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])


def _delete(connection: sqlite3.Connection, hostnames: Sequence[str]) -> None:
    for some in _in_statements(hostnames):
        connection.execute(_deletion(len(some)), some)


def _replace(connection: sqlite3.Connection, nodes: Sequence[Iterable[object]]) -> None:
    for some in _in_statements(nodes):
        connection.execute(_replacement(len(some)), list(chain.from_iterable(some)))


def _in_statements(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows of each statement."""
    start = 0
    for row_count in ROWS_PER_STATEMENT:
        while len(rows) - start >= row_count:
            yield rows[start : start + row_count]
            start += row_count


@cache
def _deletion(rows: int) -> str:
    return " ".join(["DELETE FROM node WHERE hostname IN", f"({','.join('?' * rows)})"])


@cache
def _replacement(rows: int) -> str:
    return " ".join(["INSERT OR REPLACE INTO node VALUES", ",".join(["(?,?,?,?,?,?)"] * rows)])
