"""The SQL of a batch of operations."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TypeVar

from registry.store.protocol import Heard, Row
from registry.store.sqlite.schema import checksum

# Rows in one statement. Each step of a statement releases the GIL and has to get it back from the
# busy event loop, so that one statement for each row would wait at each row.
ROWS_PER_STATEMENT = (128, 16, 1)

T = TypeVar("T")
# A row to keep, a host to forget, hosts that were heard of.
Operation = Row | str | Sequence[Heard]


class Batch:
    """The rows to write for many operations, of which later ones replace earlier ones.

    A changed node is one row of `node`. A node that was only heard of is a small row of `heard`;
    the one of the two with the later uptime counts.
    """

    def __init__(self, operations: Sequence[Operation], uptime: float) -> None:
        self._uptime = uptime
        self._nodes: dict[str, Row] = {}
        self._heard: dict[str, Heard] = {}
        self._deleted: dict[str, None] = {}
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        if isinstance(operation, Row):
            hostname = operation.hostname
            self._deleted.pop(hostname, None)
            self._heard.pop(hostname, None)
            self._nodes[hostname] = operation
        elif isinstance(operation, str):
            self._deleted[operation] = None
            self._nodes.pop(operation, None)
            self._heard.pop(operation, None)
        else:
            for heard in operation:
                self._add_heard(heard)

    def _add_heard(self, heard: Heard) -> None:
        hostname, last_update, address = heard
        row = self._nodes.get(hostname)
        if row is not None:
            self._nodes[hostname] = row._replace(last_update=last_update, address=address)
        elif hostname not in self._deleted:
            self._heard[hostname] = heard

    def apply(self, connection: sqlite3.Connection) -> None:
        """Write everything in the transaction that is open. Raises sqlite3.Error."""
        uptime = self._uptime
        deleted = sorted(self._deleted)
        _delete(connection, "node", deleted)
        _delete(connection, "heard", deleted)
        nodes = [
            (name, row.document, checksum(name, row.document), row.last_update, uptime, row.address)
            for name, row in sorted(self._nodes.items())
        ]
        _replace(connection, "node", 6, nodes)
        heard = [
            (name, last_update, uptime, address)
            for name, last_update, address in sorted(self._heard.values())
        ]
        _replace(connection, "heard", 4, heard)
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])


def _delete(connection: sqlite3.Connection, table: str, hostnames: Sequence[str]) -> None:
    for some in _in_statements(hostnames):
        connection.execute(_deletion(table, len(some)), some)


def _replace(
    connection: sqlite3.Connection, table: str, columns: int, rows: Sequence[Iterable[object]]
) -> None:
    for some in _in_statements(rows):
        connection.execute(_replacement(table, columns, len(some)), list(chain.from_iterable(some)))


def _in_statements(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows of each statement."""
    start = 0
    for row_count in ROWS_PER_STATEMENT:
        while len(rows) - start >= row_count:
            yield rows[start : start + row_count]
            start += row_count


@cache
def _deletion(table: str, rows: int) -> str:
    return " ".join(["DELETE FROM", table, f"WHERE hostname IN ({','.join('?' * rows)})"])


@cache
def _replacement(table: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return " ".join(["INSERT OR REPLACE INTO", table, "VALUES", ",".join([row] * rows)])
