"""The schemas of the SQLite store: how each is made from the one before, read and checked."""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from registry.errors import StoreOpenError, StoreVersionError
from registry.store.protocol import Row, name_digest
from registry.store.sqlite.database import (
    APPLICATION_ID,
    REMEDY,
    connect,
    sqlite_errors,
    writes_a_log,
)
from registry.store.sqlite.heard_log import (
    Contents,
    LatestHeard,
    read_heard,
    read_json_log,
    write_log,
)

ReadLog = Callable[[Iterable[Any]], Mapping[bytes, LatestHeard]]
# Those before the uptime.
COLUMN_TYPES = [str, bytes, int, int, str]
# Since schema 3.
NODE_ROWS = """
SELECT hostname, document, checksum, last_update, address, uptime FROM node ORDER BY hostname
"""


class Schema(NamedTuple):
    """A version of the schema.

    `migration` makes it from the version before (the first one, from an empty file) and keeps all
    nodes. `nodes` reads hostname, document, checksum, last_update, address and the uptime when the
    host was heard of, sorted by hostname. `uptime` reads for how many seconds registries have run.
    `delete` forgets a host; the first statement affects a row if it was known. `heard` reads the
    rows of the log, newest first, if there is one, and `read_log` returns of them what the log has
    of each host, by the digest of its name. With `empties_log`, the migration leaves an empty log,
    to which all nodes are to be written.
    """

    migration: str
    nodes: str
    uptime: str
    delete: tuple[str, ...] = (
        "DELETE FROM node WHERE hostname = ?",
        "DELETE FROM heard WHERE hostname = ?",
    )
    heard: str = ""
    read_log: ReadLog = read_heard
    empties_log: bool = False


# Entry N is schema version N + 1.
SCHEMAS: tuple[Schema, ...] = (
    Schema(
        migration="""
        CREATE TABLE node (
            hostname TEXT PRIMARY KEY,
            document BLOB NOT NULL,
            checksum INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE heard (
            hostname TEXT PRIMARY KEY,
            last_update INTEGER NOT NULL,
            uptime REAL NOT NULL,
            address TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), uptime REAL NOT NULL);
        """,
        nodes="""
        SELECT hostname, document, checksum, last_update, address, uptime
        FROM node LEFT JOIN heard USING (hostname) ORDER BY hostname
        """,
        uptime="""
        SELECT max(ifnull((SELECT max(uptime) FROM heard), 0),
                   ifnull((SELECT max(uptime) FROM clock), 0))
        """,
    ),
    Schema(
        # A changed node is one row. `heard` holds those that were only heard of since, and `clock`
        # the latest uptime of all. `generation` is explained in stamp.py.
        migration="""
        CREATE TABLE changed_node (
            hostname TEXT PRIMARY KEY,
            document BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            last_update INTEGER NOT NULL,
            uptime REAL NOT NULL,
            address TEXT NOT NULL
        ) WITHOUT ROWID;
        INSERT INTO changed_node
            SELECT hostname, document, checksum, last_update, uptime, address
            FROM node JOIN heard USING (hostname) ORDER BY hostname;
        DROP TABLE node;
        ALTER TABLE changed_node RENAME TO node;
        INSERT OR REPLACE INTO clock
            SELECT 1, max(ifnull((SELECT max(uptime) FROM heard), 0),
                          ifnull((SELECT max(uptime) FROM clock), 0));
        DELETE FROM heard;
        CREATE TABLE generation (id INTEGER PRIMARY KEY CHECK (id = 1), word TEXT NOT NULL);
        INSERT INTO generation VALUES (1, lower(hex(randomblob(16))));
        """,
        nodes="""
        SELECT hostname, document, checksum,
               iif(heard.uptime > node.uptime, heard.last_update, node.last_update),
               iif(heard.uptime > node.uptime, heard.address, node.address),
               max(ifnull(heard.uptime, 0), node.uptime)
        FROM node LEFT JOIN heard USING (hostname) ORDER BY hostname
        """,
        uptime="SELECT uptime FROM clock",
    ),
    Schema(
        # Nodes that were only heard of are in a log, of which one row has many.
        migration="""
        UPDATE node SET last_update = heard.last_update, uptime = heard.uptime,
                        address = heard.address
            FROM heard WHERE heard.hostname = node.hostname AND heard.uptime > node.uptime;
        DROP TABLE heard;
        CREATE TABLE heard_log (
            id INTEGER PRIMARY KEY,
            uptime REAL NOT NULL,
            hosts TEXT NOT NULL,
            checksum INTEGER NOT NULL
        );
        """,
        nodes=NODE_ROWS,
        uptime="SELECT uptime FROM clock",
        delete=("DELETE FROM node WHERE hostname = ?",),
        heard="SELECT uptime, hosts, checksum FROM heard_log ORDER BY id DESC",
        read_log=read_json_log,
    ),
    Schema(
        # The log takes a third of the bytes. It is explained in heard_log.py.
        migration="""
        DROP TABLE heard_log;
        CREATE TABLE heard_log (
            id INTEGER PRIMARY KEY,
            uptime REAL NOT NULL,
            names BLOB NOT NULL,
            times BLOB NOT NULL,
            checksum INTEGER NOT NULL
        );
        """,
        nodes=NODE_ROWS,
        uptime="SELECT uptime FROM clock",
        delete=("DELETE FROM node WHERE hostname = ?",),
        heard="SELECT uptime, names, times, checksum FROM heard_log ORDER BY id DESC",
        empties_log=True,
    ),
)


def checksum(hostname: str, document: bytes) -> int:
    """Return a checksum over a row: SQLite does not notice a flipped bit."""
    return zlib.crc32(document, zlib.crc32(hostname.encode()))


def read_version(path: Path, connection: sqlite3.Connection, schemas: Sequence[Schema]) -> int:
    """Return the schema version of a store, by its file and its log.

    Raises StoreVersionError for a store that a later release has made, and StoreOpenError for one
    with a version that no release writes.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    newest = len(schemas)
    if version < 1:
        raise StoreOpenError(f"{path} is corrupt: it has schema version {version}; {REMEDY}")
    if version > newest:
        raise StoreVersionError(
            f"{path} has schema version {version}, this release knows 1 to {newest};"
            " it is left as it is: run the release that wrote it, or a later one"
        )
    return int(version)


def migrate(
    connection: sqlite3.Connection,
    version: int,
    schemas: Sequence[Schema],
    contents: Contents | None = None,
) -> None:
    """Bring a store from a version to the newest, in one transaction.

    `contents` is what it has, None if it is new. Afterwards the version is in the file itself,
    where earlier releases look for it.
    """
    steps = schemas[version:]
    connection.executescript(" ".join(["BEGIN IMMEDIATE;", *[step.migration for step in steps]]))
    if contents is not None and any(step.empties_log for step in steps):
        write_log(connection, contents)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").close()
    connection.execute(f"PRAGMA user_version = {len(schemas)}").close()
    connection.execute("COMMIT").close()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


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


def clear_generation(connection: sqlite3.Connection) -> None:
    """Mark a store as a backup. One of schema 1 is recognised by its journal mode instead."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > 1:
        connection.execute("UPDATE generation SET word = ''").close()


def is_backup(path: Path) -> bool:
    """Return whether a file is a backup, not a store of a registry. Raises StoreOpenError."""
    with sqlite_errors(path), closing(connect(path, mode="ro")) as connection:
        if read_version(path, connection, SCHEMAS) > 1:
            return not read_generation(connection)
    return not writes_a_log(path)


def write_rows(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write nodes to a store that has none, and whose uptime begins now."""
    connection.execute("BEGIN").close()
    connection.executemany(
        "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)",
        [
            (name, document, checksum(name, document), last_update, -age, address)
            for name, document, last_update, address, age, _ in rows
        ],
    ).close()
    connection.execute("COMMIT").close()


def read_uptime(connection: sqlite3.Connection, schema: Schema) -> float:
    """Return for how many seconds registries have run on this store, as far as it knows."""
    (uptime,) = connection.execute(schema.uptime).fetchone()
    if not isinstance(uptime, (int, float)):
        raise sqlite3.DatabaseError("the table clock is corrupt")
    return float(uptime)


def read_contents(path: Path, connection: sqlite3.Connection, schema: Schema) -> Contents:
    """Return all nodes, checked, with their ages. Raises StoreOpenError."""
    rows: list[Row] = []
    moved: list[Row] = []
    for row, address in _read_nodes(path, connection, schema):
        rows.append(row)
        if row.address != address:
            moved.append(row)
    return Contents(rows, moved, read_uptime(connection, schema))


def read_rows(path: Path, connection: sqlite3.Connection, schema: Schema) -> Iterator[Row]:
    """Yield each node, checked, with its age. Raises StoreOpenError."""
    for row, _ in _read_nodes(path, connection, schema):
        yield row


def _read_nodes(
    path: Path, connection: sqlite3.Connection, schema: Schema
) -> Iterator[tuple[Row, str]]:
    """Yield each node, and the address that its row has."""
    now = read_uptime(connection, schema)
    later = _read_heard(path, connection, schema)
    for columns in connection.execute(schema.nodes):
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


def _read_heard(
    path: Path, connection: sqlite3.Connection, schema: Schema
) -> Mapping[bytes, LatestHeard]:
    """Return when hosts were heard of after their nodes were written. Raises StoreOpenError."""
    if not schema.heard:
        return {}
    try:
        return schema.read_log(connection.execute(schema.heard))
    except (ValueError, TypeError) as error:  # a damaged column may have another type
        reason = "a row of the table heard_log"
        raise StoreOpenError(f"{path} is corrupt: {reason}; {REMEDY}") from error
