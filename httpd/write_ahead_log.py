"""The write-ahead log of a daemon's SQLite database: kept short, and its size shown."""

import asyncio
import errno
import os
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge
from structlog.typing import FilteringBoundLogger

from runtime.periodic import PeriodicTask

MIB = 1024 * 1024
# SQLite writes the log back at 4 MiB, and begins it anew. A large transaction makes it longer.
MAX_LOG_BYTES, MAX_SHARE_OF_DISK = 16 * MIB, 8
# What a transaction may take besides its rows: pages of indexes, and the room that is freed late.
SPARE_BYTES = 64 * 1024
RETRY_SECONDS = 1.0
# From this size on, or a quarter of the disk, there is a warning.
LONG_LOG_BYTES, LONG_SHARE_OF_DISK = 64 * MIB, 4
WATCH_SECONDS = 15.0
LOOKS_TO_WARN = 2
READ = "PRAGMA schema_version"  # it needs the log, if there is one
SQLITE_IOERR_SHMSIZE = sqlite3.SQLITE_IOERR | 19 << 8
DISK_ERRORS = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}  # of their low bytes


class LogBlocked(Exception):
    """A program that reads the database keeps its log, and there is no room for more of it."""


class WriteAheadLog:
    """Keeps the log short, and the room that it takes to write it back.

    As long as another program has a transaction open, the log only grows. When it fills the disk,
    SQLite can commit nothing, and without a commit it does not write the log back either. So this
    writes it back without a commit. While it cannot, it leaves room on the disk for the pages by
    which the database has to grow then.

    `is_blocked` is whether another program keeps a long log. Methods raise sqlite3.Error. A disk
    that cannot be measured fails no transaction: the next one measures it again.
    """

    def __init__(self, database: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._tried = float("-inf")
        self.is_blocked = False

    def shorten(self, connection: sqlite3.Connection) -> bool:
        """Write a long log back; return whether that was done. It is to be called after a commit.

        A log that another program keeps is tried again once a second.
        """
        try:
            bound = _bound(self._database, MAX_LOG_BYTES, MAX_SHARE_OF_DISK)
        except OSError:
            return False
        if log_bytes(self._database) < bound:
            self.is_blocked = False
            return False
        now = self._monotonic()
        if self.is_blocked and now - self._tried < RETRY_SECONDS:
            return False
        self._tried = now
        self.is_blocked = not _write_back(connection)
        return not self.is_blocked

    def require_room(self, connection: sqlite3.Connection, size: int) -> None:
        """Raise LogBlocked if a transaction of this size may leave no room to write the log back.

        It is only asked while another program keeps the log.
        """
        if not self.is_blocked:
            return
        try:
            needed = self._growth(connection) + 2 * size + SPARE_BYTES
            has_room = _free_bytes(self._database) >= needed
        except OSError:
            return
        if not has_room:
            self.free(connection)

    def free(self, connection: sqlite3.Connection) -> None:
        """Write the log back, and free its room. Raises LogBlocked."""
        self.is_blocked = not _write_back(connection)
        if self.is_blocked:
            raise LogBlocked(
                f"another program has a transaction open in {self._database}, which keeps a log of"
                f" {log_bytes(self._database) / MIB:.0f} MiB on the disk; end it (fuser"
                f" {self._database} names it)"
            )

    def _growth(self, connection: sqlite3.Connection) -> int:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        return max(0, int(pages) * int(page_bytes) - self._database.stat().st_size)


def connect_with_log(
    connect: Callable[[], sqlite3.Connection],
    connect_alone: Callable[[], sqlite3.Connection] | None = None,
) -> tuple[sqlite3.Connection, bool]:
    """Open a database that may have a log; return whether others are shut out of it.

    The index of the log, which processes share, is a file. On a full disk SQLite cannot make it,
    but it works without that file for a single connection, which must be able to write. Raises
    sqlite3.Error.
    """
    connection = connect()
    try:
        connection.execute(READ).fetchone()
    except sqlite3.Error as error:
        connection.close()
        if not is_for_lack_of_room(error):
            raise
    else:
        return connection, False
    connection = (connect_alone or connect)()
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").close()
        connection.execute(READ).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, True


def is_for_lack_of_room(error: sqlite3.Error, folder: Path | None = None) -> bool:
    """Return whether SQLite lacks room; a full disk `folder` explains most errors of the disk."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code in {sqlite3.SQLITE_FULL, SQLITE_IOERR_SHMSIZE}:
        return True
    return folder is not None and code & 0xFF in DISK_ERRORS and is_full(folder)


def is_full(folder: Path) -> bool:
    """Return whether the disk, or a quota, has no room for the files of a database."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(SPARE_BYTES))
            return os.fstat(file.fileno()).st_size < SPARE_BYTES
    except OSError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}


def log_bytes(database: Path) -> int:
    """Return the size of the log of a database; 0 if there is none."""
    try:
        return database.with_name(f"{database.name}-wal").stat().st_size
    except OSError:
        return 0


def _write_back(connection: sqlite3.Connection) -> bool:
    """Write the log back, and free its room; return False if another program keeps it."""
    (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0").close()  # else it waits for that program
    try:
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout}").close()
    return not is_busy


def _free_bytes(database: Path) -> int:
    figures = os.statvfs(database.parent)
    return figures.f_bavail * figures.f_frsize


def _bound(database: Path, size: int, share: int) -> int:
    """Return a size, or that share of the disk if it is less."""
    figures = os.statvfs(database.parent)
    return min(size, figures.f_blocks * figures.f_frsize // share)


class LogWatch:
    """Shows the size of the log and its bound, and warns of one that stays long for two looks."""

    def __init__(
        self, metrics: CollectorRegistry, database: Path, log: FilteringBoundLogger
    ) -> None:
        self._database = database
        self._log = log
        self._looks = 0
        self._gauge = Gauge(
            "rollcall_database_log_bytes",
            "Size of the write-ahead log of the daemon's database.",
            registry=metrics,
        )
        self._long = Gauge(
            "rollcall_database_log_long_bytes",
            "Size from which on the write-ahead log is long: 64 MiB, or a quarter of the disk.",
            registry=metrics,
        )

    def look(self) -> None:
        """Look at the log now. Raises OSError."""
        size = log_bytes(self._database)
        self._gauge.set(size)
        bound = _bound(self._database, LONG_LOG_BYTES, LONG_SHARE_OF_DISK)
        self._long.set(bound)
        if size < bound:
            if self._looks >= LOOKS_TO_WARN:
                self._log.info("database log short again", database=str(self._database))
            self._looks = 0
            return
        self._looks += 1
        if self._looks == LOOKS_TO_WARN:
            self._log.warning(
                "database log cannot be written back",
                database=str(self._database),
                mebibytes=size // MIB,
                reason="another program has a transaction open in the database; fuser names it",
            )


def watching_log(
    metrics: CollectorRegistry,
    database: Path,
    log: FilteringBoundLogger,
    *,
    shorten: Callable[[], Awaitable[None]] | None = None,
) -> PeriodicTask:
    """Return what watches the log of a database while it is open.

    ``shorten`` writes a long log back, where the daemon may not commit for long.
    """
    watch = LogWatch(metrics, database, log)

    async def look() -> None:
        if shorten is not None:
            await shorten()
        with suppress(OSError):  # the disk does not answer, which has a metric of its own
            await asyncio.to_thread(watch.look)

    return PeriodicTask(interval=WATCH_SECONDS, action=look, log=log)
