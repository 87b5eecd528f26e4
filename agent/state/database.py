"""The agent's database: the apps, the journal of operations, and the history, in SQLite."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from agent.engine.errors import DiskFull
from agent.journal import JournalEntry
from agent.model import App
from agent.state.history import (
    ADD_PULLED_IMAGE,
    CREATE_EVENTS_TABLES,
    CREATE_PULLED_IMAGES_TABLE,
    CREATE_PULLS_TABLE,
    CREATE_REVISIONS_TABLE,
    Event,
    Pull,
    Revision,
    RevisionImage,
    Statement,
    events_of_app,
    read_revisions,
    revision_statements,
)
from agent.state.reserve import (
    DISK_FULL_CODES,
    SPARE_BYTES,
    execute,
    execute_with_reserve,
    keep_reserve,
    size_of,
)
from agent.state.rows import (
    AppTransaction,
    StoredState,
    app_statement,
    read_state,
    undone_statements,
)
from httpd.write_ahead_log import (
    LogBlocked,
    WriteAheadLog,
    connect_with_log,
    is_for_lack_of_room,
    is_full,
)
from runtime.durable import new_file

TIMEOUT_SECONDS = 5.0
T = TypeVar("T")
DISK_FULL = "the disk that holds the agent's database is full"
EventListener: TypeAlias = Callable[[Sequence[Event]], None]
APPLICATION_ID = 0x526F_4C41  # "RoLA"
SCHEMA_VERSION = 1
INSERT_FACTS = "INSERT INTO facts VALUES ('adopted', 'no');"
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE apps (name TEXT PRIMARY KEY, app BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE journal (app TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reserve (room BLOB);
CREATE TABLE undone (change TEXT PRIMARY KEY);
CREATE TABLE kept_data (app TEXT PRIMARY KEY, volumes BLOB NOT NULL) WITHOUT ROWID;
{CREATE_REVISIONS_TABLE};
{CREATE_PULLED_IMAGES_TABLE};
{CREATE_PULLS_TABLE};
{";".join(CREATE_EVENTS_TABLES)};
{INSERT_FACTS}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
# These are errors of the disk; the content of the file may be good.
DISK_ERROR_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
}


def back_up(path: Path, target: Path) -> int:
    """Write a consistent copy to a new file, whole or not at all; return the number of apps.

    Raises:
        StoreUnusable: there is no database, it is damaged, or the file exists or cannot be written.

    """
    if target.exists():
        raise StoreUnusable(f"{target} exists; a backup replaces nothing")
    if not path.exists():
        raise StoreUnusable(f"{path} does not exist")
    try:
        with new_file(target) as draft:
            apps = _copy(path, draft)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} cannot be copied to {target}: {error}") from error
    except OSError as error:
        raise StoreUnusable(f"{target} cannot be written: {error.strerror}") from error
    return apps


def _copy(path: Path, draft: Path) -> int:
    try:
        with closing(_connect(path, "ro")) as source, closing(_connect(draft, "rw")) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
            return _check(path, copy)
    finally:
        draft.with_name(f"{draft.name}-journal").unlink(missing_ok=True)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=TIMEOUT_SECONDS)


def _check(path: Path, copy: sqlite3.Connection) -> int:
    if copy.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise StoreUnusable(f"{path} is no database of an agent")
    if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("its pages contradict each other")
    (apps,) = copy.execute("SELECT count(*) FROM apps").fetchone()
    return int(apps)


def do_nothing() -> None:
    """Do nothing after a write."""


class StoreError(Exception):
    """The database cannot be read or written."""


class StoreUnusable(Exception):
    """The database cannot be used, and was left as it is. The text says what would help."""


class StoreTooNew(StoreUnusable):
    """A newer agent made the database."""


class AgentDatabase:
    """One database, with one connection in one thread.

    When a method returns, its change is on the disk. ``folder`` holds the database. The lock on
    that folder keeps other agents out; others may read the database, as a backup does.

    The revision and the event that go with a change are written in the same transaction. Where the
    disk has no room for the event, that is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = path.parent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._log = WriteAheadLog(path)
        self._is_alone = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # Called with the events that are on the disk, in their order, each once.
        self.listeners: list[EventListener] = []

    async def open(self) -> StoredState:
        """Open the database; create it if there is none.

        Raises:
            StoreTooNew: it is of a newer version.
            StoreUnusable: it is another program's, corrupt, in use, or cannot be read and written.

        """
        self._loop = asyncio.get_running_loop()
        return await self._in_thread(self._open)

    def _open(self) -> StoredState:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            return self._connect()
        except OSError as error:
            raise StoreUnusable(
                f"{self._path}: cannot be opened: {error.strerror}; it must belong to the agent"
            ) from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreUnusable(f"{self._path}: another program has locked it") from error
            if is_for_lack_of_room(error, self.folder):
                raise StoreUnusable(
                    f"{self._path}: cannot be used now: the disk is full; make room"
                ) from error
            # The low byte is the primary code.
            if error.sqlite_errorcode & 0xFF in DISK_ERROR_CODES:
                raise StoreUnusable(f"{self._path}: cannot be used now: {error}") from error
            raise self._corrupt(error) from error
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise self._corrupt(error) from error

    def _connect(self) -> StoredState:
        """Open the database, prepare and read it; close it again after an error."""
        with ExitStack() as after_error:
            connection = self._connected()
            after_error.callback(connection.close)
            self._prepare(connection)
            state = read_state(connection)
            after_error.pop_all()
        self._connection = connection
        return state

    def _connected(self) -> sqlite3.Connection:
        """Return a connection; on a full disk, no other program can read the file meanwhile."""
        connection, self._is_alone = connect_with_log(
            partial(sqlite3.connect, self._path, isolation_level=None, timeout=1)
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _corrupt(self, error: Exception) -> StoreUnusable:
        return StoreUnusable(
            f"{self._path}: is damaged or no database ({error}); it was left as it is. Move it"
            " away to start without it: the apps are then read back from their containers"
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION_ID and (application or version or tables):
            raise StoreUnusable(f"{self._path}: is some other program's database; name another")
        if version > SCHEMA_VERSION:
            raise StoreTooNew(f"{self._path}: was made by a newer agent; use that one")
        connection.execute("PRAGMA journal_mode = WAL")
        if not tables:
            connection.executescript(SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("its pages contradict each other")
        self._keep_room(connection)

    async def begin(
        self, entry: JournalEntry, *, undone: str | None = None, event: Event | None = None
    ) -> None:
        """Write an entry of the journal, which replaces the app's last one; ``event`` describes it.

        ``undone`` is the id of an operation whose containers are orphans from now on.
        """
        row = (entry.app, msgspec.json.encode(entry))
        statements: list[Statement] = [("REPLACE INTO journal VALUES (?, ?)", row)]
        if undone is not None:
            statements += undone_statements(undone)
        await self._write(statements, event)

    async def write(
        self, transaction: AppTransaction, *, then: Callable[[], None] = do_nothing
    ) -> None:
        """Write an app and what goes with it.

        ``then`` is called on the event loop once that is on the disk, before the listeners, also
        if the caller was cancelled.
        """
        await self._write(transaction.statements(), transaction.event, then=then)

    async def record(self, events: Sequence[Event]) -> None:
        """Write events without an app; they use no room that is reserved for changes."""

        def work() -> None:
            connection = self._opened()
            try:
                self._log.require_room(connection, SPARE_BYTES)
                if not self._log.is_blocked and not keep_reserve(connection):
                    raise DiskFull(DISK_FULL)
                self._written(execute(connection, [], events), do_nothing)
            except (sqlite3.Error, LogBlocked) as error:
                raise _store_error(error) from error
            self._keep_room(connection)

        await self._in_thread(work)

    async def shorten_log(self) -> None:
        """Free the room of a log that another program has kept on the disk."""

        def work() -> None:
            if self._connection is not None:
                with suppress(StoreError, DiskFull):
                    self._keep_room(self._opened())

        await self._in_thread(work)

    def _keep_room(self, connection: sqlite3.Connection) -> None:
        """Keep the log short and the room reserved; what fails is tried again next time.

        While another program keeps the log, more room for the reserve would be missing for it.
        """
        with suppress(sqlite3.Error):
            is_shortened = self._log.shorten(connection)
            if not self._log.is_blocked:
                keep_reserve(connection, anew=is_shortened)

    async def events_of(self, app: str) -> list[Event]:
        """Return the events of an app, the oldest first; StoreError."""
        return await self._read(lambda connection: events_of_app(connection, app))

    async def revisions(self, app: str) -> list[Revision]:
        """Return the revisions of an app, the newest first; StoreError."""
        return await self._read(lambda connection: read_revisions(connection, app))

    async def adopt(self, apps: list[App], revisions: Collection[Revision] = ()) -> None:
        """Write apps that were read from their containers. This is done once."""
        rows = [app_statement(app.name, app) for app in apps]
        for revision in revisions:
            rows += revision_statements(revision)
        await self._write([*rows, ("UPDATE facts SET value = 'yes' WHERE name = 'adopted'", ())])

    async def put_image(self, image: RevisionImage) -> None:
        """Write the image of a revision, unless that has another one."""
        await self._write(revision_statements(image))

    async def begin_pull(self, pull: Pull, *, then: Callable[[], None] = do_nothing) -> None:
        """Write a pull before it is begun, in place of another of its reference.

        ``then`` is as in ``write``.
        """
        row = (pull.reference, pull.began_at, pull.alive_at, msgspec.json.encode(pull.images))
        await self._write([("REPLACE INTO pulls VALUES (?, ?, ?, ?)", row)], then=then)

    async def renew_pull(self, pull: Pull) -> None:
        """Write that the agent still waits for a pull."""
        statement = "UPDATE pulls SET alive_at = ? WHERE reference = ? AND began_at = ?"
        await self._write([(statement, (pull.alive_at, pull.reference, pull.began_at))])

    async def end_pull(
        self,
        pull: Pull,
        image_id: str | None,
        tags: Collection[str],
        *,
        then: Callable[[], None] = do_nothing,
    ) -> None:
        """Write the end of a pull, and the image that it brought; ``then`` as above.

        ``tags`` are added to those that the image got by earlier pulls. ``image_id`` is None if it
        brought none that the agent may remove.
        """
        # Another pull of this reference may have begun.
        ended = "DELETE FROM pulls WHERE reference = ? AND began_at = ?"
        statements: list[Statement] = [(ended, (pull.reference, pull.began_at))]
        if image_id is not None:
            row = (image_id, msgspec.json.encode(sorted(tags)))
            statements.append((ADD_PULLED_IMAGE, row))
        await self._write(statements, then=then)

    async def forget_pulled(
        self, image_ids: Collection[str], *, then: Callable[[], None] = do_nothing
    ) -> None:
        """Forget images that are gone; ``then`` as above."""
        gone = "DELETE FROM pulled_images WHERE image_id = ?"
        await self._write([(gone, (each,)) for each in image_ids], then=then)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            try:
                return read(self._opened())
            except (sqlite3.Error, msgspec.MsgspecError) as error:
                raise StoreError(f"the agent's database cannot be read: {error}") from error

        return await self._in_thread(work)

    async def _write(
        self,
        statements: list[Statement],
        event: Event | None = None,
        *,
        then: Callable[[], None] = do_nothing,
    ) -> None:
        def work() -> None:
            connection = self._opened()
            events = [] if event is None else [event]
            try:
                self._log.require_room(connection, size_of(statements))
                self._written(self._execute(connection, statements, events), then)
            except (sqlite3.Error, LogBlocked) as error:
                raise _store_error(error) from error
            self._keep_room(connection)

        await self._in_thread(work)

    def _execute(
        self, connection: sqlite3.Connection, statements: list[Statement], events: list[Event]
    ) -> list[Event]:
        try:
            return execute_with_reserve(connection, statements, events)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in DISK_FULL_CODES:
                raise
            self._log.free(connection)
            return execute_with_reserve(connection, statements, events)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("the agent's database is closed")
        if self._is_alone and not is_full(self.folder):
            self._connection.close()
            try:
                self._connection = self._connected()
            except sqlite3.Error as error:  # the next one tries it again
                raise _store_error(error) from error
        return self._connection

    def _written(self, events: Sequence[Event], then: Callable[[], None]) -> None:
        """Call ``then`` and the listeners on the event loop, in the order of the writes."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._publish, events, then)

    def _publish(self, events: Sequence[Event], then: Callable[[], None]) -> None:
        then()
        if events:
            for listener in self.listeners:
                listener(events)

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


def _store_error(error: sqlite3.Error | LogBlocked) -> Exception:
    if isinstance(error, LogBlocked):
        return DiskFull(f"the disk of the agent's database has no room: {error}")
    if error.sqlite_errorcode in DISK_FULL_CODES:
        return DiskFull(DISK_FULL)
    return StoreError(f"the agent's database cannot be written: {error}")
