"""Transactions of the agent's database, and the room that is reserved for them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.state.history import Event, Statement, add_event

# Pages are written once and freed, in the file and in its write-ahead log, so that a stop or a
# delete can still be recorded when the disk is full.
RESTART_WAL = "PRAGMA wal_checkpoint(RESTART)"
PAGE_BYTES = 4096
RESERVE_BYTES = 256 * 1024
# More is reserved at once, so that only some of the writes that make the file grow have to.
SPARE_BYTES = RESERVE_BYTES // 4
# An operation writes its entry, which has the app in it, and then the app.
APPS_IN_OPERATION = 2
DISK_FULL_CODES = {sqlite3.SQLITE_FULL}


def execute_with_reserve(
    connection: sqlite3.Connection, statements: list[Statement], events: Sequence[Event]
) -> list[Event]:
    """Execute the statements; on a full disk, use the reserved room and leave out the events."""
    try:
        return execute(connection, statements, events)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in DISK_FULL_CODES:
            raise
        connection.execute(RESTART_WAL)
        return execute(connection, statements, [])


def execute(
    connection: sqlite3.Connection, statements: list[Statement], events: Sequence[Event]
) -> list[Event]:
    """Carry out all statements in a transaction, and add events; return these as written."""
    with _transaction(connection):
        for statement, values in statements:
            connection.execute(statement, values)
        return [add_event(connection, each) for each in events]


def size_of(statements: Sequence[Statement]) -> int:
    """Return how many bytes statements write, without those of the tree."""
    values = (value for _, values in statements for value in values)
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def keep_reserve(connection: sqlite3.Connection, *, anew: bool = False) -> bool:
    """Reserve room in the file for changes of the largest app on a full disk.

    With ``anew`` it is reserved in any case, since the log was shortened.

    Returns:
        False if the disk is full already, so that less room is reserved.

    Raises:
        sqlite3.Error: the database cannot be written for another reason.

    """
    (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (largest,) = connection.execute("SELECT ifnull(max(length(app)), 0) FROM apps").fetchone()
    needed_bytes = RESERVE_BYTES + APPS_IN_OPERATION * largest
    if free_pages * PAGE_BYTES >= needed_bytes and not anew:
        return True
    try:
        wanted = (needed_bytes + SPARE_BYTES,)
        execute(
            connection,
            [("INSERT INTO reserve VALUES (zeroblob(?))", wanted), ("DELETE FROM reserve", ())],
            [],
        )
        connection.execute(RESTART_WAL)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in DISK_FULL_CODES:
            raise
        return False
    return True


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:  # such as an OverflowError: an open transaction fails all later writes
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
