"""Nodes in one SQLite file: a write-ahead log, synced at each commit, one writer thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from registry.errors import StoreFull, StoreOpenError, StoreUnavailable
from registry.store.group_commit import GroupCommit
from registry.store.protocol import DoneCallback, Heard, Observe, Row
from registry.store.sqlite.batch import Batch, Operation
from registry.store.sqlite.database import (
    MIGRATIONS,
    REMEDY,
    SELECT_UPTIME,
    StoreLock,
    check_header,
    check_version,
    connect,
    connect_locked,
    create,
    migrate,
    read_rows,
)

WAL_BYTES_KEPT = 64 * 1024 * 1024


class SqliteStore:
    """A NodeStore in one file. Raises StoreOpenError, and leaves the file as it is then."""

    def __init__(
        self,
        *,
        path: Path,
        monotonic: Callable[[], float],
        observe: Observe,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._observe = observe
        self._migrations = migrations
        self._commits: GroupCommit[Operation] | None = None
        self._connection: sqlite3.Connection | None = None
        self._uptime_at_start = 0.0
        self._started = monotonic()
        self._lock = StoreLock(path)
        try:
            if not path.exists():
                create(path, migrations)
            self._version = check_header(path)
            check_version(path, self._version, len(migrations))
        except StoreOpenError:
            self._lock.release()
            raise

    async def load(self) -> list[Row]:
        """Read and check every row, then start the writer. Raises StoreOpenError."""
        rows = await asyncio.to_thread(self._load)
        self._commits = GroupCommit(name="store", write=self._write, observe=self._observe)
        return rows

    def put(self, row: Row, done: DoneCallback) -> asyncio.Future[None]:
        """Keep a node."""
        return self._require_loaded().submit(row, done)

    def touch(self, heard: Sequence[Heard], done: DoneCallback) -> asyncio.Future[None]:
        """Keep when nodes were heard of."""
        return self._require_loaded().submit(heard, done)

    def delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        """Forget a host."""
        return self._require_loaded().submit(hostname, done)

    async def close(self) -> None:
        """Finish all operations; SQLite writes its log back into the file."""
        if self._commits is not None:
            await self._commits.close()
        if self._connection is not None:
            await asyncio.to_thread(self._close)
        self._lock.release()

    def _require_loaded(self) -> GroupCommit[Operation]:
        if self._commits is None:
            raise StoreUnavailable("the store is not loaded yet")
        return self._commits

    def _load(self) -> list[Row]:
        try:
            with closing(connect_locked(self._path)) as connection:
                self._check(connection)
                rows = self._rows(connection) if self._version == len(self._migrations) else None
            self._connection = self._open()
            return self._rows(self._connection) if rows is None else rows
        except sqlite3.Error as error:
            if _error_name(error).startswith("SQLITE_BUSY"):
                raise StoreOpenError(f"{self._path} is locked by another process") from error
            raise StoreOpenError(f"{self._path} cannot be used: {error}; {REMEDY}") from error

    def _check(self, connection: sqlite3.Connection) -> None:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreOpenError(f"{self._path} is corrupt: {verdict}; {REMEDY}")

    def _rows(self, connection: sqlite3.Connection) -> list[Row]:
        (now,) = connection.execute(SELECT_UPTIME).fetchone()
        self._uptime_at_start = now
        return [row._replace(age=now - uptime) for row, uptime in read_rows(self._path, connection)]

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._path, mode="rw")
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if (journal, synchronous) != ("wal", 2):
            raise StoreOpenError(
                f"{self._path} cannot be made durable here:"
                f" journal_mode is {journal}, synchronous is {synchronous}"
            )
        if self._version < len(self._migrations):
            migrate(connection, self._version, self._migrations)
        connection.execute(
            "DELETE FROM heard WHERE hostname NOT IN (SELECT hostname FROM node)"
        ).close()

    def _close(self) -> None:
        assert self._connection is not None
        with suppress(sqlite3.Error):  # every finished operation is durable already
            self._connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [self._uptime()])
        self._connection.close()

    def _uptime(self) -> float:
        """Return the seconds for which registries have run on this file, including this one."""
        return self._uptime_at_start + self._monotonic() - self._started

    def _write(self, operations: Sequence[Operation]) -> Sequence[Exception | None]:
        try:
            self._commit(operations)
        except StoreUnavailable as error:
            return [error] * len(operations)
        except (TypeError, ValueError, OverflowError) as error:  # a row that no column takes
            if len(operations) > 1:
                return [self._write([operation])[0] for operation in operations]
            return [error]
        return [None] * len(operations)

    def _commit(self, operations: Sequence[Operation]) -> None:
        assert self._connection is not None
        connection = self._connection
        batch = Batch(operations, self._uptime())
        try:
            connection.execute("BEGIN IMMEDIATE")
            batch.apply(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # then the next failure tries it again
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _unavailable(error) from error
            raise


def _unavailable(error: sqlite3.Error) -> StoreUnavailable:
    if _error_name(error) == "SQLITE_FULL":
        return StoreFull("the disk of the registry's store is full; make room")
    return StoreUnavailable(f"the registry's store cannot be written: {error}")


def _error_name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error; errors of Python's sqlite3 itself have none."""
    return getattr(error, "sqlite_errorname", "")
