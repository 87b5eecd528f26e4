"""Nodes in one SQLite file: a write-ahead log, synced at each commit, one writer thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex

from httpd.host_metrics.write_ahead_log import (
    LogBlocked,
    WriteAheadLog,
    connect_with_log,
    is_full,
)
from registry.errors import StoreFull, StoreOpenError, StoreUnavailable, StoreUnreachable
from registry.store.group_commit import GroupCommit
from registry.store.protocol import (
    DoneCallback,
    HeardNode,
    Loaded,
    Observe,
    Row,
    SharedNodes,
)
from registry.store.sqlite.batch import Batch, Operation, Touch, size_of
from registry.store.sqlite.database import (
    Files,
    StoreLock,
    check_header,
    connect,
    connect_locked,
    error_name,
    files_of,
    sqlite_errors,
)
from registry.store.sqlite.heard_log import (
    MIN_ENTRIES,
    Entries,
    HeardLog,
    Repetition,
    fold,
)
from registry.store.sqlite.schema import (
    check_structure,
    check_version,
    create,
    read_contents,
    read_generation,
    write_generation,
)
from registry.store.sqlite.stamp import Mark, Stamp

WAL_BYTES_KEPT = 64 * 1024 * 1024


class SqliteStore:
    """A NodeStore in one file. Raises StoreOpenError, and leaves the file as it is then."""

    def __init__(
        self,
        *,
        path: Path,
        monotonic: Callable[[], float],
        observe: Observe,
        min_log_entries: int = MIN_ENTRIES,
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._observe = observe
        self._min_log_entries = min_log_entries
        self._commits: GroupCommit[Operation] | None = None
        self._connection: sqlite3.Connection | None = None
        self._repetition: Repetition | None = None
        self._heard_log = HeardLog()
        self._log = WriteAheadLog(path)
        self._is_alone = False
        self._files: Files | None = None
        self._uptime_at_start = 0.0
        self._started = monotonic()
        self._stamp = Stamp(path)
        self._continues = False
        self._generation = ""
        self._uptime_stored = 0.0
        self._lock = StoreLock(path)
        try:
            if not path.exists():
                create(path)
            self._check_version()
        except StoreOpenError:
            self._lock.close()
            raise

    async def load(self) -> Loaded:
        """Read and check every row, then start the writer. Raises StoreOpenError."""
        rows = await asyncio.to_thread(self._load)
        self._started = self._monotonic()  # while nodes were read, none could report
        self._commits = GroupCommit(name="store", write=self._write, observe=self._observe)
        return Loaded(rows, self._continues)

    def follow(self, nodes: SharedNodes) -> None:
        """Repeat ages of these nodes in the log from time to time, which keeps it short."""
        self._repetition = Repetition(nodes, self._uptime, min_entries=self._min_log_entries)

    def put(self, row: Row, done: DoneCallback) -> asyncio.Future[None]:
        """Keep a node."""
        return self._require_loaded().submit(row, done)

    def touch(self, nodes: Sequence[HeardNode], done: DoneCallback) -> asyncio.Future[None]:
        """Keep when nodes were heard of."""
        commits = self._require_loaded()
        repeated = None if self._repetition is None else self._repetition.next(len(nodes))
        return commits.submit(Touch(Entries.of(nodes), repeated), done)

    def delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        """Forget a host."""
        return self._require_loaded().submit(hostname, done)

    @property
    def memory_bytes(self) -> int:
        """Nothing: all that is known of hosts is in the file."""
        return 0

    async def confirm(self) -> None:
        """Stamp the file as this directory's own."""
        try:
            await asyncio.to_thread(self._write_stamp, self._generation)
        except StoreOpenError as error:
            raise StoreUnavailable(str(error)) from error
        self._continues = True

    async def close(self) -> None:
        """Finish all operations; SQLite writes its log back into the file."""
        if self._commits is not None:
            await self._commits.close()
        if self._connection is not None:
            await asyncio.to_thread(self._close)
        self._lock.close()

    def _require_loaded(self) -> GroupCommit[Operation]:
        if self._commits is None:
            raise StoreUnavailable("the store is not loaded yet")
        return self._commits

    def _check_version(self) -> None:
        check_header(self._path)
        with sqlite_errors(self._path), closing(connect_locked(self._path)) as connection:
            check_version(self._path, connection)

    def _load(self) -> list[Row]:
        with sqlite_errors(self._path):
            with closing(connect_locked(self._path)) as connection:
                check_structure(self._path, connection)
                contents = read_contents(self._path, connection)
                self._uptime_at_start = self._uptime_stored = contents.uptime
                mark, generation = self._stamp.read(), read_generation(connection)
                self._continues = mark is not None and mark.fits(generation, contents.uptime)
            self._connection = self._open()
            self._files = files_of(self._path)
            return fold(self._connection, contents)

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        """Open the file to write it; on a full disk, no other program can read it meanwhile."""
        connection, self._is_alone = connect_with_log(partial(connect, self._path, mode="rw"))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        connection.execute("PRAGMA secure_delete = OFF")  # else each removed page is written
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        with suppress(sqlite3.Error, LogBlocked):  # a log may have filled the disk before a kill
            self._log.free(connection)
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if (journal, synchronous) != ("wal", 2):
            raise StoreOpenError(
                f"{self._path} cannot be made durable here:"
                f" journal_mode is {journal}, synchronous is {synchronous}"
            )
        self._draw_generation(connection)

    def _draw_generation(self, connection: sqlite3.Connection) -> None:
        """Draw another generation, so that no copy from before this start fits.

        A stamp of another store does not fit then, either. If the disk is full, the stamp that
        fits stays: a registry starts on a full disk, and older copies have an earlier uptime.
        """
        before, drawn = read_generation(connection), token_hex(16)
        try:
            if self._continues:
                self._write_stamp(before, drawn)
            write_generation(connection, drawn)
            if self._continues:
                self._write_stamp(drawn)
        except (StoreOpenError, sqlite3.OperationalError):
            if not (self._continues and self._stamp.resume(before)):
                raise
        self._generation = read_generation(connection)

    def _write_stamp(self, *generations: str) -> None:
        try:
            self._stamp.write(Mark(generations, int(self._uptime_stored)))
        except OSError as error:
            raise StoreOpenError(f"the stamp of {self._path} cannot be written: {error}") from error

    def _close(self) -> None:
        assert self._connection is not None
        with suppress(sqlite3.Error):  # every finished operation is durable already
            uptime = self._uptime()
            self._connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])
            self._stamp.advance(uptime, interval=0)
        self._connection.close()

    def _uptime(self) -> float:
        """Return the seconds for which registries have run on this file, including this one."""
        return self._uptime_at_start + self._monotonic() - self._started

    def _write(self, operations: Sequence[Operation]) -> Sequence[Exception | None]:
        try:
            self._commit_with_room(operations)
        except StoreUnavailable as error:
            return [error] * len(operations)
        except (TypeError, ValueError, OverflowError) as error:  # a row that no column takes
            if len(operations) > 1:
                return [self._write([operation])[0] for operation in operations]
            return [error]
        return [None] * len(operations)

    def _commit_with_room(self, operations: Sequence[Operation]) -> None:
        """Commit; where the disk is full, free the room of the log, and try it again."""
        assert self._connection is not None
        self._require_files()
        try:
            if self._is_alone and not is_full(self._path.parent):
                self._connection.close()
                self._connection, self._files = self._connect(), None
            self._log.require_room(self._connection, sum(map(size_of, operations)))
            try:
                self._commit(operations)
            except StoreFull:
                self._log.free(self._connection)
                self._commit(operations)
            with suppress(sqlite3.Error):  # it is committed; the next one tries it again
                self._log.shorten(self._connection)
        except LogBlocked as error:
            raise StoreFull(f"the disk of the registry's store has no room: {error}") from error
        except sqlite3.Error as error:
            raise _unavailable(error, self._path) from error

    def _require_files(self) -> None:
        """Raise StoreUnreachable if the file or its log is not where the next start looks for it.

        SQLite would go on to write to files that nobody finds again.
        """
        files = files_of(self._path)
        known = self._files or files
        if any(before not in (None, now) for before, now in zip(known, files, strict=True)):
            raise StoreUnreachable(
                f"{self._path} or its log (-wal) was removed, renamed or replaced while the"
                " registry runs: put them back; if they are lost, restart the registry, and hosts"
                " are known again as soon as they report"
            )
        self._files = files

    def _commit(self, operations: Sequence[Operation]) -> None:
        assert self._connection is not None
        connection = self._connection
        uptime = self._uptime()
        batch = Batch(operations, uptime)
        try:
            connection.execute("BEGIN IMMEDIATE")
            batch.apply(connection, self._heard_log)
            connection.execute("COMMIT")
            self._heard_log.note_committed()
            self._uptime_stored = uptime
            self._stamp.advance(uptime)
        except BaseException as error:
            self._heard_log.fail()
            with suppress(sqlite3.Error):  # then the next failure tries it again
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _unavailable(error, self._path) from error
            raise


def _unavailable(error: sqlite3.Error, path: Path) -> StoreUnavailable:
    name = error_name(error)
    if name == "SQLITE_FULL":
        return StoreFull("the disk of the registry's store is full; make room")
    if name.startswith("SQLITE_BUSY"):
        return StoreUnreachable(
            f"another program has locked the registry's store; end it (fuser {path} names it)"
        )
    return StoreUnavailable(f"the registry's store cannot be written: {error}")
