"""When nodes were last heard of: a log in the store. Repeating all ages bounds its size.

A heartbeat that changes nothing is an entry of the log, so that many of them are one row. A row for
each node would be a page to read and to write for each heartbeat of a large fleet. From time to
time the ages of all nodes in memory are repeated in the log, some with each write; what is before
them is then needed no more.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from registry.store.protocol import Heard, HeardBefore, Row, SharedNodes

# Ages are repeated once the log has grown by an entry for each node, and by this many.
MIN_ENTRIES = 1000
# Rows are removed a few at a time, so that no commit takes long; a flush adds two.
ROWS_REMOVED_AT_ONCE = 8
HOSTS_IN_ROW = 1000

# The uptime when a node was last heard of, and its `last_update` and address since then. A plain
# tuple is of no concern to the garbage collector.
LatestHeard = tuple[float, int, str]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[HeardBefore]).decode


class Repeated(NamedTuple):
    """Ages that are repeated, as they are at an uptime; the first ones, or the last ones of all."""

    hosts: Sequence[HeardBefore]
    uptime: float
    is_first: bool
    is_last: bool


class Repetition:
    """Chooses which ages are repeated next. Used on the event loop."""

    def __init__(self, nodes: SharedNodes, uptime: Callable[[], float]) -> None:
        self._nodes = nodes
        self._uptime = uptime
        self._entries = 0  # since the last repetition
        self._repeated = 0
        self._last: str | None = None

    def next(self, entries: int) -> Repeated | None:
        """Return the ages to write again beside the new entries; None if there are none."""
        self._entries += entries
        is_first = self._last is None
        if is_first:
            if self._entries < max(MIN_ENTRIES, self._repeated):
                return None
            self._last, self._repeated = "", 0
        hosts, is_last = self._take(entries)
        return Repeated(hosts, self._uptime(), is_first=is_first, is_last=is_last)

    def _take(self, count: int) -> tuple[list[HeardBefore], bool]:
        """Return at least `count` of the next ages, or fewer at the end."""
        hosts: list[HeardBefore] = []
        while len(hosts) <= count:
            some = self._nodes.ages(self._last or "")
            if not some:
                self._last, self._entries = None, 0
                break
            hosts += some
            self._last = some[-1].hostname
        self._repeated += len(hosts)
        return hosts, self._last is None


class HeardLog:
    """Writes the log. Used in the store's thread, in the transaction that is open."""

    def __init__(self) -> None:
        # Ids of rows: the last one before the repetition in progress, and the last one of those
        # that a complete repetition has made unneeded.
        self._last_before_repetition: int | None = None
        self._last_superseded = 0

    def append(
        self, connection: sqlite3.Connection, hosts: Iterable[Heard | HeardBefore], uptime: float
    ) -> None:
        """Add a row. Raises sqlite3.Error, ValueError."""
        text = _encode(list(hosts)).decode()
        connection.execute(
            "INSERT INTO heard_log (uptime, hosts, checksum) VALUES (?, ?, ?)",
            [uptime, text, _checksum(uptime, text)],
        ).close()

    def repeat(self, connection: sqlite3.Connection, repeated: Repeated) -> None:
        """Add ages that are repeated. Raises sqlite3.Error."""
        if repeated.is_first:
            query = "SELECT ifnull(max(id), 0) FROM heard_log"
            (self._last_before_repetition,) = connection.execute(query).fetchone()
        if repeated.hosts:
            self.append(connection, repeated.hosts, repeated.uptime)
        if repeated.is_last and self._last_before_repetition is not None:
            self._last_superseded = self._last_before_repetition
            self._last_before_repetition = None

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
        """Remove nothing until all ages are repeated again: some were not written."""
        self._last_before_repetition, self._last_superseded = None, 0


def fold(connection: sqlite3.Connection, rows: Sequence[Row], uptime: float) -> None:
    """Write a log that is long anew, with one entry for each node: these are all, as at an uptime.

    Otherwise it would grow with each run that ends before all ages are repeated. It is left as it
    is if there is no room. Raises sqlite3.Error.
    """
    query = "SELECT ifnull(sum(json_array_length(hosts)), 0) FROM heard_log"
    (entries,) = connection.execute(query).fetchone()
    if entries <= 2 * len(rows) + MIN_ENTRIES:
        return
    try:
        _write_all(connection, rows, uptime)
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute("ROLLBACK").close()


def _write_all(connection: sqlite3.Connection, rows: Sequence[Row], uptime: float) -> None:
    log = HeardLog()
    connection.execute("BEGIN IMMEDIATE").close()
    connection.execute("DELETE FROM heard_log").close()
    for start in range(0, len(rows), HOSTS_IN_ROW):
        ages = [
            HeardBefore(row.hostname, row.last_update, row.address, row.age)
            for row in rows[start : start + HOSTS_IN_ROW]
        ]
        log.append(connection, ages, uptime)
    connection.execute("COMMIT").close()


def _checksum(uptime: float, text: str) -> int:
    """Return a checksum over a row: SQLite does not notice a flipped bit."""
    return zlib.crc32(text.encode(), zlib.crc32(repr(uptime).encode()))


def read_heard(rows: Iterable[tuple[float, str, int]]) -> dict[str, LatestHeard]:
    """Return what a log says of each host; its rows come newest first.

    Raises ValueError for a damaged row.
    """
    latest: dict[str, LatestHeard] = {}
    for uptime, text, checksum in rows:
        if _checksum(uptime, text) != checksum:
            raise ValueError("a row of the table heard_log")
        for hostname, last_update, address, age in _decode(text):
            if hostname not in latest:
                latest[hostname] = (uptime - age, last_update, address)
    return latest
