"""The SQL of a batch of operations."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

from registry.store.protocol import Heard, Row
from registry.store.sqlite.heard_log import HeardLog, Repeated
from registry.store.sqlite.schema import checksum

# Rows in one statement. Each step of a statement releases the GIL and has to get it back from the
# busy event loop, so that one statement for each row would wait at each row.
ROWS_PER_STATEMENT = (128, 16, 1)

HOSTNAME = itemgetter(0)
T = TypeVar("T")


class Touch(NamedTuple):
    """Hosts that were heard of, and the ages to repeat with them in the log."""

    heard: Sequence[Heard]
    repeated: Repeated | None


# A row to keep, a host to forget, hosts that were heard of.
Operation = Row | str | Touch


class Batch:
    """The rows to write for many operations, of which later ones replace earlier ones.

    A changed node is one row of `node`. Nodes that were only heard of are one row of `heard_log`.
    Where both have the same uptime, that of `node` counts.
    """

    def __init__(self, operations: Sequence[Operation], uptime: float) -> None:
        self._uptime = uptime
        self._nodes: dict[str, Row] = {}
        self._heard: dict[str, Heard] = {}
        self._deleted: dict[str, None] = {}
        self._repeated: list[Repeated] = []
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
            self._add_heard(operation.heard)
            if operation.repeated is not None:
                self._repeated.append(operation.repeated)

    def _add_heard(self, hosts: Sequence[Heard]) -> None:
        self._heard.update(zip(map(HOSTNAME, hosts), hosts, strict=True))
        for hostname in self._heard.keys() & self._nodes.keys():
            _, last_update, address = self._heard.pop(hostname)
            row = self._nodes[hostname]
            self._nodes[hostname] = row._replace(last_update=last_update, address=address)

    def apply(self, connection: sqlite3.Connection, log: HeardLog) -> None:
        """Write everything in the transaction that is open. Raises sqlite3.Error, ValueError."""
        uptime = self._uptime
        _delete(connection, sorted(self._deleted))
        nodes = [
            (name, row.document, checksum(name, row.document), row.last_update, uptime, row.address)
            for name, row in sorted(self._nodes.items())
        ]
        _replace(connection, nodes)
        for repeated in self._repeated:
            log.repeat(connection, repeated)
        if self._heard:
            log.append(connection, self._heard.values(), uptime)
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
