"""The SQL of a batch of operations."""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain

from registry.store.protocol import Heard, Row
from registry.store.sqlite.database import checksum

# Rows in one statement. Each step of a statement releases the GIL and has to get it back from the
# busy event loop, so that one statement for each row would wait at each row.
ROWS_PER_STATEMENT = (128, 16, 1)

# A row to keep, a host to forget, hosts that were heard of.
Operation = Row | str | Sequence[Heard]


class Batch:
    """What is to be written of many operations, where later ones replace earlier ones."""

    def __init__(self, operations: Sequence[Operation], uptime: float) -> None:
        self._uptime = uptime
        self._nodes: dict[str, tuple[str, bytes, int]] = {}
        self._heard: dict[str, tuple[str, int, float, str]] = {}
        self._deleted: dict[str, None] = {}
        self._clock = False
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        if isinstance(operation, Row):
            hostname, document = operation.hostname, operation.document
            self._deleted.pop(hostname, None)
            self._nodes[hostname] = (hostname, document, checksum(hostname, document))
            self._add_heard(hostname, operation.last_update, operation.address)
        elif isinstance(operation, str):
            self._deleted[operation] = None
            self._nodes.pop(operation, None)
            self._heard.pop(operation, None)
        else:
            self._clock = True
            for hostname, last_update, address in operation:
                if hostname not in self._deleted:
                    self._add_heard(hostname, last_update, address)

    def _add_heard(self, hostname: str, last_update: int, address: str) -> None:
        self._heard[hostname] = (hostname, last_update, self._uptime, address)

    def apply(self, connection: sqlite3.Connection) -> None:
        """Write everything in the transaction that is open. Raises sqlite3.Error."""
        for hostname in self._deleted:
            connection.execute("DELETE FROM node WHERE hostname = ?", [hostname])
            connection.execute("DELETE FROM heard WHERE hostname = ?", [hostname])
        _replace(connection, "node", 3, [self._nodes[name] for name in sorted(self._nodes)])
        _replace(connection, "heard", 4, [self._heard[name] for name in sorted(self._heard)])
        if self._clock:
            connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [self._uptime])


def _replace(
    connection: sqlite3.Connection, table: str, columns: int, rows: Sequence[Iterable[object]]
) -> None:
    start = 0
    for row_count in ROWS_PER_STATEMENT:
        while len(rows) - start >= row_count:
            values = list(chain.from_iterable(rows[start : start + row_count]))
            connection.execute(_statement(table, columns, row_count), values)
            start += row_count


@cache
def _statement(table: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return " ".join(["INSERT OR REPLACE INTO", table, "VALUES", ",".join([row] * rows)])
