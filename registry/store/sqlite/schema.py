"""The schema of the SQLite store: how a store is made, checked and read."""

import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from httpd.write_ahead_log import is_full
from registry.errors import StoreOpenError, StoreVersionError
from registry.store.protocol import Row, name_digest
from registry.store.sqlite import stamp
from registry.store.sqlite.database import (
    APPLICATION_ID,
    REMEDY,
    check_no_orphaned_wal,
    connect,
    inherit_owner,
)
from registry.store.sqlite.heard_log import Contents, LatestHeard, read_heard
from runtime.durable import new_file

SCHEMA_VERSION = 4  # of the first release
# A changed node is one row. `clock` holds for how many seconds registries have run on the store,
# `heard_log` which nodes were only seen (heard_log.py), `generation` a word (stamp.py).
SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE node (
    hostname TEXT PRIMARY KEY,
    document BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    last_update INTEGER NOT NULL,
    uptime REAL NOT NULL,
    address TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), uptime REAL NOT NULL);
INSERT INTO clock VALUES (1, 0);
CREATE TABLE generation (id INTEGER PRIMARY KEY CHECK (id = 1), word TEXT NOT NULL);
INSERT INTO generation VALUES (1, lower(hex(randomblob(16))));
CREATE TABLE heard_log (
    id INTEGER PRIMARY KEY,
    uptime REAL NOT NULL,
    names BLOB NOT NULL,
    times BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
"""
# The types of a node's columns before the uptime.
COLUMN_TYPES = [str, bytes, int, int, str]
NODE_ROWS = """
SELECT hostname, document, checksum, last_update, address, uptime FROM node ORDER BY hostname
"""
LOG_ROWS = "SELECT uptime, names, times, checksum FROM heard_log ORDER BY id DESC"


def checksum(hostname: str, document: bytes) -> int:
    """Return a checksum over a row: SQLite does not notice a flipped bit."""
    return zlib.crc32(document, zlib.crc32(hostname.encode()))


def create(path: Path, rows: Sequence[Row] = ()) -> None:
    """Create a store of these nodes, whole or not at all. Raises StoreOpenError."""
    check_no_orphaned_wal(path)
    try:
        stamp.remove(path)  # left over from a store that is gone
        with new_file(path) as draft:
            inherit_owner(draft, path)
            with closing(connect(draft, mode="rw")) as connection:
                _make(connection, rows)
                connection.execute("PRAGMA journal_mode = WAL")
    except (OSError, sqlite3.Error) as error:
        why = "the disk is full; make room" if is_full(path.parent) else error
        raise StoreOpenError(f"{path} cannot be made: {why}") from error


def _make(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Make a store of these nodes of an empty file. Its uptime begins now."""
    connection.executescript(SCHEMA)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").close()
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}").close()
    connection.executemany(
        "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)",
        [
            (name, document, checksum(name, document), last_update, -age, address)
            for name, document, last_update, address, age, _ in rows
        ],
    ).close()
    connection.execute("COMMIT").close()


def check_version(path: Path, connection: sqlite3.Connection) -> None:
    """Raise StoreVersionError if another schema is that of a store, by its file and its log."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} has schema version {version}, this release knows {SCHEMA_VERSION}; it is left"
            " as it is: run the release that wrote it, or a later one"
        )


def check_structure(path: Path, connection: sqlite3.Connection) -> None:
    """Raise StoreOpenError if SQLite finds the file damaged."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreOpenError(f"{path} is corrupt: {verdict}; {REMEDY}")


def read_generation(connection: sqlite3.Connection) -> str:
    """Return the generation of a store; a backup's is empty."""
    (word,) = connection.execute("SELECT word FROM generation").fetchone()
    return str(word)


def write_generation(connection: sqlite3.Connection, word: str) -> None:
    """Set another generation of a store, durably."""
    connection.execute("UPDATE generation SET word = ?", [word]).close()


def read_uptime(connection: sqlite3.Connection) -> float:
    """Return for how many seconds registries have run on this store."""
    (uptime,) = connection.execute("SELECT uptime FROM clock").fetchone()
    if not isinstance(uptime, (int, float)):
        raise sqlite3.DatabaseError("the table clock is corrupt")
    return float(uptime)


def read_contents(path: Path, connection: sqlite3.Connection) -> Contents:
    """Return all nodes, checked, with their ages. Raises StoreOpenError."""
    rows: list[Row] = []
    moved: list[Row] = []
    for row, address in _read_nodes(path, connection):
        rows.append(row)
        if row.address != address:
            moved.append(row)
    return Contents(rows, moved, read_uptime(connection))


def read_rows(path: Path, connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield each node, checked, with its age. Raises StoreOpenError."""
    for row, _ in _read_nodes(path, connection):
        yield row


def _read_nodes(path: Path, connection: sqlite3.Connection) -> Iterator[tuple[Row, str]]:
    """Yield each node, and the address that its row has."""
    now = read_uptime(connection)
    later = _read_log(path, connection)
    for columns in connection.execute(NODE_ROWS):
        hostname, document, stored, last, address, uptime = columns
        if not (_has_types(columns) and checksum(hostname, document) == stored):
            raise StoreOpenError(f"{path} is corrupt: the row of {hostname!a}; {REMEDY}")
        known = uptime, last, address
        heard = later.get(name_digest(hostname), known)
        heard_at, last_update, heard_from = heard if heard[0] > uptime else known
        if heard_from is None:
            heard_from = address
        yield Row(hostname, document, last_update, heard_from, now - heard_at), address


def _has_types(columns: tuple[object, ...]) -> bool:
    """Return whether the columns of a node still have the types with which they were written."""
    *others, uptime = columns
    return [*map(type, others)] == COLUMN_TYPES and isinstance(uptime, (int, float))


def _read_log(path: Path, connection: sqlite3.Connection) -> Mapping[bytes, LatestHeard]:
    """Return when hosts were seen after their nodes were written. Raises StoreOpenError."""
    try:
        return read_heard(connection.execute(LOG_ROWS))
    except (ValueError, TypeError) as error:  # a damaged column may have another type
        reason = "a row of the table heard_log"
        raise StoreOpenError(f"{path} is corrupt: {reason}; {REMEDY}") from error
