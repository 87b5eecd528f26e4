"""The file of the SQLite store: creating, locking, checking and migrating it."""

import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO
from urllib.parse import quote

from registry.errors import StoreOpenError
from registry.store.protocol import Row
from registry.store.sqlite.ownership import inherit_owner

APPLICATION_ID = 0x524F4C4C
MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
# Entry N turns schema version N into N + 1.
MIGRATIONS: tuple[str, ...] = (
    """
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
)
REMEDY = (
    "it is left as it is; restore a backup (rollcall-registry restore FILE), or move the file away"
    " together with those beside it that end in -wal and -shm: then hosts are known again as soon"
    " as they report"
)


def checksum(hostname: str, document: bytes) -> int:
    """Return a checksum over a row: SQLite does not notice a flipped bit."""
    return zlib.crc32(document, zlib.crc32(hostname.encode()))


class StoreLock:
    """Keeps other processes from the store. The kernel releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        lock = sibling(path, ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self._file: IO[str] = os.fdopen(descriptor, "w")
            inherit_owner(lock, path)
        except FileNotFoundError as error:
            raise StoreOpenError(
                f"{path} cannot be written: the directory {path.parent} does not exist; make it,"
                " for the user that runs the registry, or name another file as `store`"
            ) from error
        except OSError as error:
            raise StoreOpenError(f"{lock} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StoreOpenError(
                f"{path} is in use by another process; two registries cannot share one file"
            ) from error

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def sibling(path: Path, suffix: str) -> Path:
    """Return the path with a suffix added to its name."""
    return path.with_name(path.name + suffix)


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """Open a file that exists; `mode` is ro or rw. The caller handles sqlite3.Error."""
    return _connect(f"file:{quote(str(path))}?mode={mode}")


def connect_locked(path: Path) -> sqlite3.Connection:
    """Open a locked file for reading, without creating files beside it."""
    has_wal = sibling(path, "-wal").exists()
    return _connect(f"file:{quote(str(path))}?mode=ro{'' if has_wal else '&immutable=1'}")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=2.0,
        isolation_level=None,
        check_same_thread=False,
    )


def check_header(path: Path) -> int:
    """Return the schema version of a store. Raises StoreOpenError if the file is none."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise StoreOpenError(f"{path} cannot be read: {error.strerror}") from error
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise StoreOpenError(f"{path} is not a SQLite database; {REMEDY}")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreOpenError(
            f"{path} is a database of another program; it is left as it is:"
            " name another file as `store`"
        )
    return int.from_bytes(header[60:64], "big")


def check_version(path: Path, version: int, newest: int) -> None:
    """Raise StoreOpenError for a store that a later release has made."""
    if not 1 <= version <= newest:
        raise StoreOpenError(
            f"{path} has schema version {version}, this release knows 1 to {newest};"
            " it is left as it is: run the release that wrote it, or a later one"
        )


def check_no_orphaned_wal(path: Path) -> None:
    """Raise StoreOpenError if there is a log without a store: a new store would take it over."""
    wal = sibling(path, "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise StoreOpenError(
            f"{path} does not exist, but its log {wal} does, and may hold changes that are nowhere"
            f" else; put {path} back beside it, or move {wal} away too"
        )


def create(path: Path, migrations: Sequence[str]) -> None:
    """Create an empty store, whole or not at all. Raises StoreOpenError."""
    check_no_orphaned_wal(path)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        inherit_owner(draft, path)
        with closing(connect(draft, mode="rw")) as connection:
            migrate(connection, 0, migrations)
            connection.execute("PRAGMA journal_mode = WAL")
        rename_durably(draft, path)
    except (OSError, sqlite3.Error) as error:
        draft.unlink(missing_ok=True)
        raise StoreOpenError(f"{path} cannot be made: {error}") from error


def rename_durably(draft: Path, path: Path) -> None:
    """Rename a finished file, durably."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def migrate(connection: sqlite3.Connection, version: int, migrations: Sequence[str]) -> None:
    """Bring a store to the newest schema, in one transaction."""
    connection.executescript(
        f"BEGIN IMMEDIATE; {' '.join(migrations[version:])}"
        f" PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {len(migrations)}; COMMIT;"
    )


SELECT_NODES = """
    SELECT hostname, document, checksum, last_update, address, uptime
    FROM node LEFT JOIN heard USING (hostname) ORDER BY hostname
"""
SELECT_UPTIME = """
    SELECT max(ifnull((SELECT max(uptime) FROM heard), 0),
               ifnull((SELECT max(uptime) FROM clock), 0))
"""


def read_rows(path: Path, connection: sqlite3.Connection) -> Iterator[tuple[Row, float]]:
    """Yield each node, checked, with the registry's uptime in seconds when it was heard of.

    Raises StoreOpenError.
    """
    for hostname, document, stored, last_update, address, uptime in connection.execute(
        SELECT_NODES
    ):
        if checksum(hostname, document) != stored or last_update is None:
            raise StoreOpenError(f"{path} is corrupt: the row of {hostname!a}; {REMEDY}")
        yield Row(hostname, document, last_update, address), uptime


def check_rows(path: Path, connection: sqlite3.Connection) -> int:
    """Check the structure and each row; return the number of nodes. Raises StoreOpenError."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreOpenError(f"{path} is corrupt: {verdict}; {REMEDY}")
    return sum(1 for _ in read_rows(path, connection))
