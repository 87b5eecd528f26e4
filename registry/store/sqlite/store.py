"""Nodes in one SQLite file: a write-ahead log, synced at each commit, one writer thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

from httpd.write_ahead_log import (
    LogBlocked,
    WriteAheadLog,
    connect_with_log,
    is_full,
)
from registry.errors import (
    NoRoomForChange,
    StoreFull,
    StoreOpenError,
    StoreUnavailable,
    StoreUnreachable,
)
from registry.store.commits import GroupCommit
from registry.store.protocol import (
    LARGE_BYTES,
    DoneCallback,
    HeardNode,
    Loaded,
    Observe,
    Row,
    SharedNodes,
    name_digest,
)
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
    Repeated,
    Repetition,
    fold,
)
from registry.store.sqlite.schema import (
    check_structure,
    check_version,
    checksum,
    create,
    read_contents,
    read_generation,
    write_generation,
)
from registry.store.sqlite.stamp import Mark, Stamp

WAL_BYTES_KEPT = 64 * 1024 * 1024
# Each statement releases the GIL and has to get it back from the busy event loop, so many rows
# share one. It has room for a power of two of rows, so that few prepared statements are needed.
MAX_ROWS_IN_STATEMENT = 128
# Each prepared statement keeps a copy of what was bound to it last. So larger documents do not
# share one, and the copies take at most 4 MiB together, and one large document.
MAX_SHARED_DOCUMENT_BYTES = 16 * 1024
UNUSED_ROW = (None,) * 6
# What an operation may write besides its own bytes: pages of the tree, and of what it frees.
PAGES_BYTES = 16 * 1024
BYTES_PER_TOUCH = 128


T = TypeVar("T")


class Touch(NamedTuple):
    """Hosts that were seen, and the ages to repeat with them in the log."""

    heard: Entries
    repeated: Repeated | None


# A row to keep, a host to forget, hosts that were seen.
Operation = Row | str | Touch


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
        """Keep when nodes were seen."""
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
        except StoreFull as error:
            return self._write_small(operations, error)
        except StoreUnavailable as error:
            return [error] * len(operations)
        except (TypeError, ValueError, OverflowError) as error:  # a row that no column takes
            if len(operations) > 1:
                return [self._write([operation])[0] for operation in operations]
            return [error]
        return [None] * len(operations)

    def _write_small(
        self, operations: Sequence[Operation], error: StoreFull
    ) -> Sequence[Exception | None]:
        """Write the small ones of these operations, for which there may be room."""
        small = [each for each in operations if not is_large(each)]
        if len(small) == len(operations):
            return [error] * len(operations)
        outcomes = iter(self._write(small) if small else ())
        rejection = NoRoomForChange(str(error))
        return [rejection if is_large(each) else next(outcomes) for each in operations]

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


def is_large(operation: Operation) -> bool:
    """Return whether there may be no room for this operation, but for others."""
    return isinstance(operation, Row) and len(operation.document) > LARGE_BYTES


def size_of(operation: Operation) -> int:
    """Return how many bytes an operation may add to the database, roughly and rather too many."""
    if isinstance(operation, Row):
        return len(operation.document) + PAGES_BYTES
    if isinstance(operation, Touch):
        return BYTES_PER_TOUCH * len(operation.heard.names) + PAGES_BYTES
    return PAGES_BYTES


class Batch:
    """The rows to write for many operations, of which later ones replace earlier ones.

    A changed node is one row of `node`. Nodes that were only seen are one row of `heard_log`
    for each operation. Where both have the same uptime, that of `node` counts.
    """

    def __init__(self, operations: Sequence[Operation], uptime: float) -> None:
        self._uptime = uptime
        self._nodes: dict[str, Row] = {}
        self._deleted: dict[str, None] = {}
        self._touches: list[Touch] = []
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        if isinstance(operation, Row):
            hostname = operation.hostname
            self._deleted.pop(hostname, None)
            self._nodes[hostname] = operation
        elif isinstance(operation, str):
            self._deleted[operation] = None
            self._nodes.pop(operation, None)
        else:
            self._touches.append(operation)
            if self._nodes:
                self._touch_nodes(operation.heard)

    def _touch_nodes(self, heard: Entries) -> None:
        """Update the rows of nodes that were seen after they had changed."""
        positions = {name: position for position, name in enumerate(heard.names)}
        for hostname, row in self._nodes.items():
            position = positions.get(name_digest(hostname))
            if position is not None:
                self._nodes[hostname] = row._replace(
                    last_update=heard.last_updates[position],
                    address=heard.addresses.get(position, row.address),
                )

    def apply(self, connection: sqlite3.Connection, log: HeardLog) -> None:
        """Write everything in the transaction that is open.

        Raises sqlite3.Error, ValueError, OverflowError.
        """
        uptime = self._uptime
        _delete(connection, sorted(self._deleted))
        _replace(connection, (row for _, row in sorted(self._nodes.items())), uptime)
        for touch in self._touches:
            if touch.repeated is not None:
                log.repeat(connection, touch.repeated)
            if touch.heard.names:
                log.append(connection, touch.heard, uptime)
                log.remove_some(connection)
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])


def _delete(connection: sqlite3.Connection, hostnames: Sequence[str]) -> None:
    for some in _in_statements(hostnames):
        room = _room_for(len(some))
        connection.execute(_deletion(room), [*some, *[None] * (room - len(some))])


def _replace(connection: sqlite3.Connection, rows: Iterable[Row], uptime: float) -> None:
    shared: list[tuple[object, ...]] = []
    for row in rows:
        name, document = row.hostname, row.document
        columns = name, document, checksum(name, document), row.last_update, uptime, row.address
        if len(document) > MAX_SHARED_DOCUMENT_BYTES:
            connection.execute(_replacement(1), columns)
        else:
            shared.append(columns)
    for some in _in_statements(shared):
        room = _room_for(len(some))
        unused = UNUSED_ROW * (room - len(some))
        connection.execute(_replacement(room), [*chain.from_iterable(some), *unused])


def _in_statements(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows of each statement."""
    for start in range(0, len(rows), MAX_ROWS_IN_STATEMENT):
        yield rows[start : start + MAX_ROWS_IN_STATEMENT]


def _room_for(rows: int) -> int:
    """Return for how many rows a statement has room that takes these: the next power of two."""
    return 1 << (rows - 1).bit_length()


@cache
def _deletion(room: int) -> str:
    """Return a statement that deletes this many hosts. NULL is the name of none."""
    return " ".join(["DELETE FROM node WHERE hostname IN", f"({','.join('?' * room)})"])


@cache
def _replacement(room: int) -> str:
    """Return a statement that writes this many rows. Those whose hostname is NULL are left out."""
    rows = ",".join(["(?,?,?,?,?,?)"] * room)
    return " ".join(
        ["INSERT OR REPLACE INTO node SELECT * FROM", f"(VALUES {rows})", "WHERE column1 NOT NULL"]
    )
