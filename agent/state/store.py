"""What was asked for, and what is being done about it, in SQLite."""

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
from agent.model import App, Change

T = TypeVar("T")
Statement: TypeAlias = tuple[str, tuple[object, ...]]
APPLICATION_ID = 0x526F_4C41  # "RoLA"
SCHEMA_VERSION = 2
CREATE_UNDONE_TABLE = "CREATE TABLE undone (change TEXT PRIMARY KEY);"
INSERT_FACTS = "INSERT INTO facts VALUES ('agent', lower(hex(randomblob(8)))), ('adopted', 'no');"
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE apps (name TEXT PRIMARY KEY, app BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (app TEXT PRIMARY KEY, change BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reserve (room BLOB);
{CREATE_UNDONE_TABLE}
{INSERT_FACTS}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
MIGRATION = (
    f"BEGIN IMMEDIATE; {CREATE_UNDONE_TABLE} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
)
# Of so many changes that were undone is known that a container of theirs is nobody's.
MAX_UNDONE = 1024
# Pages that are written once and then free, in the file and in its log, so that a stop or a
# delete can still be written down when the disk is full.
RESTART_WAL = "PRAGMA wal_checkpoint(RESTART)"
RESERVE_BYTES = 256 * 1024
DISK_FULL_CODES = {sqlite3.SQLITE_FULL}
# What is wrong with the disk says nothing of what is in the file.
DISK_ERROR_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
}


class StoreError(Exception):
    """The database did not take it, or did not give it."""


class StoreUnusable(Exception):
    """The database cannot be used; it is left as it is. The text says what would help."""


@dataclass(frozen=True)
class StoredState:
    """All that the database holds.

    ``adopted`` tells whether containers of an earlier database, now lost, were looked for;
    ``undone`` are the ids of changes that were taken back.
    """

    agent: str
    adopted: bool
    apps: list[App]
    changes: list[Change]
    undone: list[str]


class Store:
    """One database, opened by one agent at a time, with one connection in one thread.

    A method that has returned has put its work on the disk. ``folder`` is where the database lies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = path.parent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> StoredState:
        """Open the database, or make it where there is none.

        Raises:
            StoreUnusable: it is not ours, of a newer version, corrupt, in use, or out of reach.

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
            if (
                error.sqlite_errorcode & 0xFF in DISK_ERROR_CODES
            ):  # the rest of the code tells more of it
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
            connection.executescript(MIGRATION)
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
            # A disk that is full already is no reason not to start.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode not in DISK_FULL_CODES:
                raise

    def _read(self, connection: sqlite3.Connection) -> StoredState:
        facts = dict(connection.execute("SELECT name, value FROM facts"))
        apps = connection.execute("SELECT app FROM apps ORDER BY name")
        changes = connection.execute("SELECT change FROM changes ORDER BY app")
        undone = connection.execute("SELECT change FROM undone ORDER BY rowid")
        try:
            return StoredState(
                agent=facts["agent"],
                adopted=facts["adopted"] == "yes",
                apps=[msgspec.json.decode(row[0], type=App) for row in apps],
                changes=[msgspec.json.decode(row[0], type=Change) for row in changes],
                undone=[row[0] for row in undone],
            )
        except KeyError as error:
            raise sqlite3.DatabaseError("a fact is missing in it") from error

    async def begin(self, change: Change, *, undone: str | None = None) -> None:
        """Write a change down, or how far it is.

        ``undone`` is a change whose container is nobody's, such as one whose place this one takes.
        """
        await self._write([_change_statement(change), *_undone_statements(undone)])

    async def finish(self, change: Change, app: App | None, *, undone: str | None = None) -> None:
        """Close a change, and put the app as it now is, or take it out; ``undone`` as in begin."""
        await self._write(
            [
                _app_statement(change.app, app),
                ("DELETE FROM changes WHERE app = ?", (change.app,)),
                *_undone_statements(undone),
            ]
        )

    async def put(self, app: App) -> None:
        """Put an app as it now is."""
        await self._write([_app_statement(app.name, app)])

    async def adopt(self, apps: list[App]) -> None:
        """Put apps that were read back from their containers; this is done once."""
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
        # What has begun is waited for even when the asker is gone: the next one relies on it.
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


def _change_statement(change: Change) -> Statement:
    return "REPLACE INTO changes VALUES (?, ?)", (change.app, msgspec.json.encode(change))


def _app_statement(name: str, app: App | None) -> Statement:
    if app is None:
        return "DELETE FROM apps WHERE name = ?", (name,)
    return "REPLACE INTO apps VALUES (?, ?)", (name, msgspec.json.encode(app))


def _undone_statements(change: str | None) -> list[Statement]:
    if change is None:
        return []
    oldest = "DELETE FROM undone WHERE rowid <= (SELECT max(rowid) FROM undone) - ?"
    return [("INSERT OR IGNORE INTO undone VALUES (?)", (change,)), (oldest, (MAX_UNDONE,))]


def _store_error(error: sqlite3.Error) -> Exception:
    if error.sqlite_errorcode in DISK_FULL_CODES:
        return DiskFull("the disk that holds the agent's database is full")
    return StoreError(f"the agent's database cannot be written: {error}")
