"""Copies of all nodes out of a SQLite file, while a registry may use it, and into one."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from registry.errors import StoreOpenError
from registry.store.files.durable import rename_durably
from registry.store.protocol import Snapshot, StoreName
from registry.store.snapshots import (
    Known,
    another_source,
    another_target,
    differ,
    differences,
    known_nodes,
    moved_already,
)
from registry.store.sqlite import stamp
from registry.store.sqlite.database import (
    APPLICATION_ID,
    MOVED_ID,
    UNFINISHED_ID,
    StoreInUse,
    StoreLock,
    check_header,
    check_no_orphaned_wal,
    connect,
    connect_locked,
    read_application,
    roll_back_journal,
    set_application,
    sibling,
    sqlite_errors,
    unused_name,
)
from registry.store.sqlite.file_owner import inherit_owner
from registry.store.sqlite.schema import (
    SCHEMAS,
    check_structure,
    checksum,
    clear_other_store,
    is_backup,
    migrate,
    read_generation,
    read_other_store,
    read_rows,
    read_uptime,
    read_version,
    write_other_store,
)
from registry.store.sqlite.stamp import Mark, Stamp, is_own

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.2


class FileSource:
    """A CopySource over a file. A backup is only read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = _name(path)
        self._lock: StoreLock | None = None
        if not path.exists():
            check_no_orphaned_wal(path)
            raise StoreOpenError(f"{path} does not exist")
        self._roll_back_journal()
        check_header(path, allowed={APPLICATION_ID, MOVED_ID})
        self._is_backup = not sibling(path, ".lock").exists() and is_backup(path)
        self._target: StoreName | None = None
        self.was_moved = read_application(path) == MOVED_ID

    def _roll_back_journal(self) -> None:
        if not sibling(self._path, "-journal").exists():
            return
        with suppress(StoreInUse):
            lock = StoreLock(self._path)
            try:
                roll_back_journal(self._path)
            finally:
                lock.release()

    async def users(self) -> int:
        """Return 1 if a registry has locked the file."""
        if self._lock is None and not self._is_backup:
            try:
                StoreLock(self._path).release()
            except StoreInUse:
                return 1
        return 0

    async def take(self, target: StoreName) -> bool:
        """Lock the file, if no registry uses it; return whether none does."""
        self._target = target
        if self._lock is None and not self._is_backup:
            try:
                self._lock = StoreLock(self._path)
            except StoreInUse:
                return False
        if self.was_moved:
            self._require_moved_to(target)
        return True

    def _require_moved_to(self, target: StoreName) -> None:
        with sqlite_errors(self._path), closing(self._connect()) as connection:
            found = read_other_store(connection)
        if found.identity != target.identity:
            raise StoreOpenError(another_target(self.name, found, target))

    async def snapshot(self) -> Snapshot:
        """Return all nodes, of the file and its log.

        While a registry opens or closes the file, it can be locked for some seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self._read)
            except StoreInUse:
                if loop.time() > end:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    def _read(self) -> Snapshot:
        path = self._path
        with sqlite_errors(path), closing(self._connect()) as connection:
            connection.execute("BEGIN").close()
            version = read_version(path, connection, SCHEMAS)
            check_structure(path, connection)
            schema = SCHEMAS[version - 1]
            uptime = read_uptime(connection, schema)
            rows = list(read_rows(path, connection, schema))
            generation = read_generation(connection) if version > 1 else None
            return Snapshot(rows, uptime, is_own(path, generation, uptime))

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path, mode="ro") if self._lock is None else connect_locked(self._path)

    async def retire(self) -> None:
        """Write into the file that it has moved, unless it is a backup."""
        if self._lock is None or self._target is None:
            return
        with sqlite_errors(self._path), closing(connect(self._path, mode="rw")) as connection:
            connection.execute("PRAGMA synchronous = EXTRA").close()
            # Without its log, what is written is in the file itself, which is looked at first.
            connection.execute("PRAGMA journal_mode = DELETE").close()
            connection.execute("BEGIN IMMEDIATE").close()
            write_other_store(connection, self._target)
            set_application(connection, MOVED_ID)
            connection.execute("COMMIT").close()

    def close(self) -> None:
        """Unlock the file."""
        if self._lock is not None:
            self._lock.release()


class FileTarget:
    """A CopyTarget over a locked file, which is marked as unfinished until it is complete."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self.name = _name(path)
        self._connection = connection
        connection.execute("PRAGMA synchronous = EXTRA").close()
        self._held = self._read()

    def _read(self) -> dict[str, Known]:
        uptime = read_uptime(self._connection, SCHEMAS[-1])
        return known_nodes(read_rows(self._path, self._connection, SCHEMAS[-1]), uptime)

    async def write(self, snapshot: Snapshot, *, final: bool) -> None:
        """Write what differs, in one transaction; compare all that is there for the last time."""
        await asyncio.to_thread(self._write, snapshot, final=final)

    def _write(self, snapshot: Snapshot, *, final: bool) -> None:
        wanted = known_nodes(snapshot.rows, snapshot.uptime)
        changed = differences(wanted, self._held)
        connection = self._connection
        with sqlite_errors(self._path):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "DELETE FROM node WHERE hostname = ?", [(name,) for name in changed]
            )
            connection.executemany(
                "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)",
                [_columns(wanted[name]) for name in changed if name in wanted],
            )
            connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [snapshot.uptime])
            connection.execute("COMMIT")
            self._held = wanted
            if final:
                self._compare(wanted)

    def _compare(self, wanted: dict[str, Known]) -> None:
        check_structure(self._path, self._connection)
        found = differences(wanted, self._read())
        if found:
            raise StoreOpenError(differ(self._path, found))

    async def complete(self, snapshot: Snapshot) -> None:
        """Stamp the file if what was copied was current; then make it a store like any other."""
        with sqlite_errors(self._path):
            try:
                if snapshot.continues:
                    generation = read_generation(self._connection)
                    Stamp(self._path).write(Mark((generation,), int(snapshot.uptime)))
                else:
                    stamp.remove(self._path)
            except OSError as error:
                raise StoreOpenError(
                    f"the stamp of {self._path} cannot be written: {error}"
                ) from error
            self._connection.execute("BEGIN IMMEDIATE").close()
            clear_other_store(self._connection)
            set_application(self._connection, APPLICATION_ID)
            self._connection.execute("COMMIT").close()


def _name(path: Path) -> StoreName:
    return StoreName(str(path), f"file {path.resolve()}")


def _columns(known: Known) -> tuple[str, bytes, int, int, float, str]:
    """Return a node as a row of the table."""
    row = known.row
    check = checksum(row.hostname, row.document)
    return row.hostname, row.document, check, row.last_update, known.heard, row.address


@asynccontextmanager
async def file_source(path: Path) -> AsyncIterator[FileSource]:
    """Open a file to copy from. Raises StoreOpenError."""
    source = FileSource(path)
    try:
        yield source
    finally:
        source.close()


@asynccontextmanager
async def file_target(path: Path, source: StoreName, *, resume: bool) -> AsyncIterator[FileTarget]:
    """Open a file to copy into, and make it if there is none. Raises StoreOpenError."""
    lock = StoreLock(path)
    try:
        _prepare(path, source, resume=resume)
        with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
            yield FileTarget(path, connection)
    finally:
        lock.release()


def _prepare(path: Path, source: StoreName, *, resume: bool) -> None:
    """Make an unfinished copy, if there is none yet. Raises StoreOpenError."""
    roll_back_journal(path)
    application = read_application(path) if path.exists() else None
    if application == UNFINISHED_ID:
        _require_copy_of(path, source)
        return
    if resume:
        raise StoreOpenError(moved_already(source, path))
    if application not in {None, MOVED_ID}:
        raise StoreOpenError(f"{path} exists; a copy replaces nothing: name another file")
    if application is None:
        check_no_orphaned_wal(path)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        if application == MOVED_ID:
            path.rename(unused_name(path, ".before-copy"))
        _create(draft, path, source)
    except (OSError, sqlite3.Error) as error:
        raise StoreOpenError(f"{path} cannot be made: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _require_copy_of(path: Path, source: StoreName) -> None:
    """Raise StoreOpenError if a file is an unfinished copy of another store."""
    with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
        found = read_other_store(connection)
    if found.identity != source.identity:
        raise StoreOpenError(another_source(path, found, source))


def _create(draft: Path, path: Path, source: StoreName) -> None:
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    inherit_owner(draft, path)
    with closing(connect(draft, mode="rw")) as connection:
        migrate(connection, 0, SCHEMAS)
        write_other_store(connection, source)
        set_application(connection, UNFINISHED_ID)
    stamp.remove(path)
    rename_durably(draft, path)
