"""The apps and the journal of operations, in SQLite."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from agent.engine.protocol import DiskFull
from agent.model import App, JournalEntry
from agent.state.migrations import (
    CREATE_JOURNAL_TABLE,
    CREATE_KEPT_DATA_TABLE,
    CREATE_UNDONE_TABLE,
    migrate,
)

T = TypeVar("T")
Statement: TypeAlias = tuple[str, tuple[object, ...]]
ENTRY_DECODER: msgspec.json.Decoder[JournalEntry] = msgspec.json.Decoder(JournalEntry)
VOLUMES_DECODER = msgspec.json.Decoder(dict[str, str])
APPLICATION_ID = 0x526F_4C41  # "RoLA"
SCHEMA_VERSION = 4
INSERT_FACTS = "INSERT INTO facts VALUES ('agent', lower(hex(randomblob(8)))), ('adopted', 'no');"
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE apps (name TEXT PRIMARY KEY, app BLOB NOT NULL) WITHOUT ROWID;
{CREATE_JOURNAL_TABLE};
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reserve (room BLOB);
{CREATE_UNDONE_TABLE};
{CREATE_KEPT_DATA_TABLE};
{INSERT_FACTS}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
# How many ids of undone operations are kept; a container that one of them made is an orphan.
MAX_UNDONE = 1024
# Pages are written once and freed, in the file and in its write-ahead log, so that a stop or a
# delete can still be recorded when the disk is full.
RESTART_WAL = "PRAGMA wal_checkpoint(RESTART)"
RESERVE_BYTES = 256 * 1024
DISK_FULL_CODES = {sqlite3.SQLITE_FULL}
# These are errors of the disk; the content of the file may be good.
DISK_ERROR_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
}


class StoreError(Exception):
    """The database cannot be read or written."""


class StoreUnusable(Exception):
    """The database cannot be used, and was left as it is. The text says what would help."""


@dataclass(frozen=True)
class StoredState:
    """All that the database holds.

    Attributes:
        agent: The id of the agent, by which it knows its containers.
        adopted: Containers of an earlier database, now lost, were looked for.
        apps: All apps, by name.
        entries: The journal: operations that have not ended.
        undone: The ids of operations that were undone.
        kept_data: The volumes, by path, that a deleted app has left, by the app's name.

    """

    agent: str
    adopted: bool
    apps: list[App]
    entries: list[JournalEntry]
    undone: list[str]
    kept_data: dict[str, dict[str, str]]


class Store:
    """One database, opened by one agent at a time, with one connection in one thread.

    When a method returns, its change is on the disk. ``folder`` holds the database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = path.parent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> StoredState:
        """Open the database; create it if there is none, migrate it if it is of an older version.

        Raises:
            StoreUnusable: it is another program's, of a newer version, corrupt, in use, or cannot
                be read and written.

        """
        return await self._in_thread(self._open)

    def _open(self) -> StoredState:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=1)
            self._prepare(self._connection)
            return self._read(self._connection)
        except OSError as error:
            raise StoreUnusable(
                f"{self._path}: cannot be opened: {error.strerror}; it must belong to the agent"
            ) from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreUnusable(f"{self._path}: another agent has it open") from error
            # The low byte is the primary code.
            if error.sqlite_errorcode & 0xFF in DISK_ERROR_CODES:
                raise StoreUnusable(f"{self._path}: cannot be used now: {error}") from error
            raise self._corrupt(error) from error
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: Exception) -> StoreUnusable:
        return StoreUnusable(
            f"{self._path}: is damaged or no database ({error}); it was left as it is. Move it"
            " away to start without it: the apps are then read back from their containers"
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION_ID and (application or version or tables):
            raise StoreUnusable(f"{self._path}: is some other program's database; name another")
        if version > SCHEMA_VERSION:
            raise StoreUnusable(f"{self._path}: was made by a newer agent; use that one")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if not tables:
            connection.executescript(SCHEMA)
        elif version < SCHEMA_VERSION:
            migrate(connection, version=version, to_version=SCHEMA_VERSION)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("its pages contradict each other")
        self._reserve_space(connection)

    def _reserve_space(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_BYTES,))
            connection.execute("DELETE FROM reserve")
            connection.execute("COMMIT")
            connection.execute(RESTART_WAL)
        except sqlite3.OperationalError as error:
            # The agent starts on a full disk, too.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode not in DISK_FULL_CODES:
                raise

    def _read(self, connection: sqlite3.Connection) -> StoredState:
        facts = dict(connection.execute("SELECT name, value FROM facts"))
        apps = connection.execute("SELECT app FROM apps ORDER BY name")
        entries = connection.execute("SELECT entry FROM journal ORDER BY app")
        undone = connection.execute("SELECT change FROM undone ORDER BY rowid")
        kept = connection.execute("SELECT app, volumes FROM kept_data")
        try:
            return StoredState(
                agent=facts["agent"],
                adopted=facts["adopted"] == "yes",
                apps=[msgspec.json.decode(row[0], type=App) for row in apps],
                entries=[ENTRY_DECODER.decode(row[0]) for row in entries],
                undone=[row[0] for row in undone],
                kept_data={row[0]: VOLUMES_DECODER.decode(row[1]) for row in kept},
            )
        except KeyError as error:
            raise sqlite3.DatabaseError("a fact is missing in it") from error

    async def begin(self, entry: JournalEntry, *, undone: str | None = None) -> None:
        """Write an entry of the journal, in place of another of that app.

        ``undone`` is the id of an operation whose containers are orphans from now on.
        """
        await self._write([_entry_statement(entry), *_undone_statements(undone)])

    async def finish(
        self,
        entry: JournalEntry,
        app: App | None,
        *,
        undone: str | None = None,
        kept_data: dict[str, str] | None = None,
    ) -> None:
        """Remove an entry, and write the app as it is now, or remove it; ``undone`` as in begin.

        ``kept_data`` are the volumes, by path, that the app leaves; None: as they are.
        """
        await self._write(
            [
                _app_statement(entry.app, app),
                ("DELETE FROM journal WHERE app = ?", (entry.app,)),
                *_undone_statements(undone),
                *_kept_data_statements(entry.app, kept_data),
            ]
        )

    async def put(self, app: App) -> None:
        """Write an app."""
        await self._write([_app_statement(app.name, app)])

    async def adopt(self, apps: list[App]) -> None:
        """Write apps that were read from their containers. This is done once."""
        rows = [_app_statement(app.name, app) for app in apps]
        await self._write([*rows, ("UPDATE facts SET value = 'yes' WHERE name = 'adopted'", ())])

    async def _write(self, statements: list[Statement]) -> None:
        def work() -> None:
            connection = self._connection
            if connection is None:
                raise StoreError("the agent's database is closed")
            try:
                _execute_with_reserve(connection, statements)
            except sqlite3.Error as error:
                raise _store_error(error) from error

        await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # A cancelled caller does not cancel the write: the next one relies on its end.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    async def close(self) -> None:
        """Close the database."""

        def work() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        await self._in_thread(work)
        self._thread.shutdown()


def _execute_with_reserve(connection: sqlite3.Connection, statements: list[Statement]) -> None:
    try:
        _execute(connection, statements)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in DISK_FULL_CODES:
            raise
        connection.execute(RESTART_WAL)
        _execute(connection, statements)


def _execute(connection: sqlite3.Connection, statements: list[Statement]) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _entry_statement(entry: JournalEntry) -> Statement:
    return "REPLACE INTO journal VALUES (?, ?)", (entry.app, msgspec.json.encode(entry))


def _app_statement(name: str, app: App | None) -> Statement:
    if app is None:
        return "DELETE FROM apps WHERE name = ?", (name,)
    return "REPLACE INTO apps VALUES (?, ?)", (name, msgspec.json.encode(app))


def _kept_data_statements(app: str, volumes: dict[str, str] | None) -> list[Statement]:
    if volumes is None:
        return []
    if not volumes:
        return [("DELETE FROM kept_data WHERE app = ?", (app,))]
    return [("REPLACE INTO kept_data VALUES (?, ?)", (app, msgspec.json.encode(volumes)))]


def _undone_statements(operation: str | None) -> list[Statement]:
    if operation is None:
        return []
    oldest = "DELETE FROM undone WHERE rowid <= (SELECT max(rowid) FROM undone) - ?"
    return [("INSERT OR IGNORE INTO undone VALUES (?)", (operation,)), (oldest, (MAX_UNDONE,))]


def _store_error(error: sqlite3.Error) -> Exception:
    if error.sqlite_errorcode in DISK_FULL_CODES:
        return DiskFull("the disk that holds the agent's database is full")
    return StoreError(f"the agent's database cannot be written: {error}")
