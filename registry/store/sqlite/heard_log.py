"""When nodes were last seen: a log in the store, which stays short.

A heartbeat that changes nothing is an entry of the log, so that many of them are one row. A row for
each node would be a page to read and to write for each heartbeat of a large fleet. From time to
time a boundary is set in the log. Later, the ages of those nodes are repeated that were not seen
of since: mostly few. What is before the boundary is then needed no more.

An entry has the digest of the hostname, not the name: each byte counts for a large fleet. It has
the address only if the node has moved since its own row was written. A start writes such addresses
to the rows.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from struct import iter_unpack
from typing import NamedTuple

import msgspec

from registry.store.protocol import (
    NAME_DIGEST_BYTES,
    HeardNode,
    Row,
    SharedNodes,
    name_digest,
)

# A boundary is set once the log has grown by an entry for each node, and by this many.
MIN_ENTRIES = 1000
# With each write, ages are repeated for as many nodes as it has new entries, and for some more.
MIN_REPEATED = 10
# Rows are removed a few at a time, so that no commit takes long; a flush adds two.
ROWS_REMOVED_AT_ONCE = 8
HOSTS_IN_ROW = 1000

# The uptime when a node was last seen, and its `last_update` and address since then; no address
# if it is that of the node's row. A plain tuple is of no concern to the garbage collector.
LatestHeard = tuple[float, int, str | None]


class Entries(NamedTuple):
    """Nodes that were seen: the digests of their names, and when that was.

    `ages` are the seconds since then; without any, it was now. `addresses` are those of nodes that
    have moved, by their position.
    """

    names: Sequence[bytes]
    last_updates: Sequence[int]
    ages: Sequence[float] = ()
    addresses: Mapping[int, str] = {}

    @classmethod
    def of(cls, nodes: Sequence[HeardNode], ages: Sequence[float] = ()) -> "Entries":
        """Return nodes as entries."""
        return cls(
            [node.name_digest for node in nodes],
            [node.last_update for node in nodes],
            ages,
            {position: node.address for position, node in enumerate(nodes) if node.is_moved},
        )


class _Times(msgspec.Struct, array_like=True):
    """What a row of the log has beside the digests."""

    last_updates: list[int]
    ages: list[float]
    addresses: dict[int, str] = {}


class Contents(NamedTuple):
    """All nodes of a store as they are at an uptime, sorted by hostname.

    `moved` are those of which only the log has the address.
    """

    rows: list[Row]
    moved: list[Row]
    uptime: float


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Times).decode


class Repeated(NamedTuple):
    """Ages that are repeated, as they are at an uptime.

    With `sets_boundary`, a boundary is set before them. With `is_last`, what is before the previous
    boundary is needed no more.
    """

    entries: Entries
    uptime: float
    sets_boundary: bool
    is_last: bool


class Repetition:
    """Chooses which ages are repeated next. Used on the event loop."""

    def __init__(
        self, nodes: SharedNodes, uptime: Callable[[], float], *, min_entries: int = MIN_ENTRIES
    ) -> None:
        self._nodes = nodes
        self._uptime = uptime
        self._min_entries = min_entries
        self._boundary: float | None = None  # the uptime when the last one was set
        self._entries = 0  # since then
        # The nodes whose ages are to be repeated.
        self._silent: Iterator[tuple[HeardNode, float]] | None = None
        self._unwritten: int | None = None

    def next(self, entries: int) -> Repeated | None:
        """Return the ages to write again beside the new entries; None if there are none."""
        self._entries += entries
        sets_boundary = self._is_boundary_due()
        if sets_boundary:
            self._set_boundary()
        elif self._unwritten is not None:
            self._unwritten -= entries
        nodes = self._take(max(entries, MIN_REPEATED))
        repeated = Entries.of([node for node, _ in nodes], [age for _, age in nodes])
        is_last = self._unwritten is not None and self._unwritten <= 0
        if is_last:
            self._unwritten = None
        if not (repeated.names or sets_boundary or is_last):
            return None
        return Repeated(repeated, self._uptime(), sets_boundary=sets_boundary, is_last=is_last)

    def _is_boundary_due(self) -> bool:
        if self._boundary is None:
            return True
        if self._silent is not None or self._unwritten is not None:
            return False
        return self._entries >= max(self._min_entries, self._nodes.count)

    def _set_boundary(self) -> None:
        now = self._uptime()
        if self._boundary is not None:
            self._silent = self._nodes.silent(now - self._boundary)
        self._boundary, self._entries = now, 0

    def _take(self, count: int) -> list[tuple[HeardNode, float]]:
        """Return the next nodes; at the end, note how many were seen and not written.

        These were left out, so what the log has of them is needed until they are written: the
        nodes seen first are written first.
        """
        if self._silent is None:
            return []
        nodes = list(islice(self._silent, count))
        if len(nodes) < count:
            self._silent = None
            self._unwritten = self._nodes.unwritten
        return nodes


class HeardLog:
    """Writes the log. Used in the store's thread, in the transaction that is open."""

    def __init__(self) -> None:
        # Ids of rows: the last ones before the two latest boundaries; the last one that is needed
        # no more, and the one that will be once the transaction is committed.
        self._previous: int | None = None
        self._latest: int | None = None
        self._last_superseded = 0
        self._next_superseded: int | None = None

    def append(self, connection: sqlite3.Connection, entries: Entries, uptime: float) -> None:
        """Add a row. Raises sqlite3.Error, ValueError, OverflowError."""
        names = b"".join(entries.names)
        times = _encode(entries[1:])
        connection.execute(
            "INSERT INTO heard_log (uptime, names, times, checksum) VALUES (?, ?, ?, ?)",
            [uptime, names, times, _checksum(uptime, names, times)],
        ).close()

    def repeat(self, connection: sqlite3.Connection, repeated: Repeated) -> None:
        """Add ages that are repeated. Raises sqlite3.Error, ValueError, OverflowError."""
        if repeated.sets_boundary:
            query = "SELECT ifnull(max(id), 0) FROM heard_log"
            self._previous = self._latest
            (self._latest,) = connection.execute(query).fetchone()
        if repeated.entries.names:
            self.append(connection, repeated.entries, repeated.uptime)
        if repeated.is_last:
            self._next_superseded = self._previous

    def note_committed(self) -> None:
        """Record that all that was written is durable."""
        if self._next_superseded is not None:
            self._last_superseded, self._next_superseded = self._next_superseded, None

    def remove_some(self, connection: sqlite3.Connection) -> None:
        """Remove the oldest rows that are needed no more. Raises sqlite3.Error."""
        if self._last_superseded:
            removed = connection.execute(
                "DELETE FROM heard_log WHERE id IN"
                " (SELECT id FROM heard_log WHERE id <= ? ORDER BY id LIMIT ?)",
                [self._last_superseded, ROWS_REMOVED_AT_ONCE],
            )
            if not removed.rowcount:
                self._last_superseded = 0

    def fail(self) -> None:
        """Forget the boundaries: what came after them is not all written."""
        self._previous = self._latest = self._next_superseded = None


def fold(connection: sqlite3.Connection, contents: Contents) -> list[Row]:
    """Write the addresses of moved nodes to their rows; write a log that is long anew.

    The log then has one entry for each node. Otherwise it would grow with each run that ends before
    a boundary is of use. All is left as it is if there is no room. Return all nodes, of which some
    `is_moved` in that case. Raises sqlite3.Error.
    """
    query = "SELECT ifnull(sum(length(names)), 0) / ? FROM heard_log"
    (entries,) = connection.execute(query, [NAME_DIGEST_BYTES]).fetchone()
    is_long = entries > 2 * len(contents.rows) + MIN_ENTRIES
    if not (is_long or contents.moved):
        return contents.rows
    try:
        connection.execute("BEGIN IMMEDIATE").close()
        if is_long:
            connection.execute("DELETE FROM heard_log").close()
            write_log(connection, contents)
        connection.executemany(
            "UPDATE node SET address = ? WHERE hostname = ?",
            [(row.address, row.hostname) for row in contents.moved],
        ).close()
        connection.execute("COMMIT").close()
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute("ROLLBACK").close()
        moved = {row.hostname for row in contents.moved}
        return [row._replace(is_moved=row.hostname in moved) for row in contents.rows]
    return contents.rows


def write_log(connection: sqlite3.Connection, contents: Contents) -> None:
    """Write an entry for each node to a log that is empty. Raises sqlite3.Error."""
    log = HeardLog()
    moved = {row.hostname for row in contents.moved}
    for start in range(0, len(contents.rows), HOSTS_IN_ROW):
        some = contents.rows[start : start + HOSTS_IN_ROW]
        entries = Entries(
            [name_digest(row.hostname) for row in some],
            [row.last_update for row in some],
            [row.age for row in some],
            {place: row.address for place, row in enumerate(some) if row.hostname in moved},
        )
        log.append(connection, entries, contents.uptime)


def _checksum(uptime: float, *parts: bytes) -> int:
    """Return a checksum over a row: SQLite does not notice a flipped bit."""
    checksum = zlib.crc32(repr(uptime).encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def read_heard(rows: Iterable[tuple[float, bytes, bytes, int]]) -> dict[bytes, LatestHeard]:
    """Return a log's rows of each host, by the digest of its name; its rows come newest first.

    Raises ValueError for a damaged row.
    """
    latest: dict[bytes, LatestHeard] = {}
    for uptime, names, times, checksum in rows:
        if _checksum(uptime, names, times) != checksum:
            raise ValueError("a row of the table heard_log")
        last_updates, ages, addresses = msgspec.structs.astuple(_decode(times))
        digests = iter_unpack(f"{NAME_DIGEST_BYTES}s", names)
        for position, ((name,), last_update, age) in enumerate(
            zip(digests, last_updates, ages or [0.0] * len(last_updates), strict=True)
        ):
            if name not in latest:
                latest[name] = (uptime - age, last_update, addresses.get(position))
    return latest
