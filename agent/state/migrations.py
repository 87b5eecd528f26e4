"""Databases of earlier versions, brought up to the present schema.

Version 2 added the table `undone`, version 3 a type for each kind of row in the journal, version 4
the table `kept_data` and the names of volumes in the journal. Version 5 starts apps that should run
and do not: those that an earlier version left down stay so. Version 6 added the tables `revisions`,
in which each app has its first, and `pulled_images`, version 7 the events, version 8 the table
`pulls`.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from agent.journal import JournalEntry
from agent.model import App, Down
from agent.state.events import CREATE_EVENTS_TABLES
from agent.state.history import CREATE_PULLS_TABLE, add_history

CREATE_UNDONE_TABLE = "CREATE TABLE undone (change TEXT PRIMARY KEY)"
CREATE_JOURNAL_TABLE = (
    "CREATE TABLE journal (app TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID"
)
CREATE_KEPT_DATA_TABLE = (
    "CREATE TABLE kept_data (app TEXT PRIMARY KEY, volumes BLOB NOT NULL) WITHOUT ROWID"
)
# The fields that these versions changed in the running container.
LIVE_FIELDS = frozenset({"cpu", "memory"})
TYPES = {"create": "create", "stop": "stop", "delete": "delete", "keys": "password"}


def migrate(connection: sqlite3.Connection, *, version: int, to_version: int) -> None:
    """Bring a database of an earlier schema ``version`` up to date: all of it, or nothing.

    Raises:
        sqlite3.Error, msgspec.MsgspecError: the database is as it was.

    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        _upgrade(connection, version)
        connection.execute(f"PRAGMA user_version = {to_version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _upgrade(connection: sqlite3.Connection, version: int) -> None:
    for made_version, step in STEPS:
        if version < made_version:
            step(connection)


def _add_undone(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE_UNDONE_TABLE)


def _add_types(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE_JOURNAL_TABLE)
    for app, row in connection.execute("SELECT app, change FROM changes").fetchall():
        entry = msgspec.json.encode(fields_from_change(msgspec.json.decode(row)))
        connection.execute("INSERT INTO journal VALUES (?, ?)", (app, entry))
    connection.execute("DROP TABLE changes")


def _add_volumes(connection: sqlite3.Connection) -> None:
    for app, row in connection.execute("SELECT app, entry FROM journal").fetchall():
        entry = msgspec.json.encode(entry_with_volumes(msgspec.json.decode(row)))
        connection.execute("UPDATE journal SET entry = ? WHERE app = ?", (entry, app))
    connection.execute(CREATE_KEPT_DATA_TABLE)


def _leave_down(connection: sqlite3.Connection) -> None:
    """Mark all apps that should run; the mark is removed when an app is seen up."""
    for name, row in connection.execute("SELECT name, app FROM apps").fetchall():
        app = msgspec.json.decode(row, type=App)
        if app.desired == "running":
            marked = msgspec.structs.replace(app, down=Down(cause="found"))
            connection.execute(
                "UPDATE apps SET app = ? WHERE name = ?", (msgspec.json.encode(marked), name)
            )


def entry_with_volumes(fields: Any) -> JournalEntry:
    """Return the entry for a row of version 3, in which an app had one volume, named after it.

    Raises:
        msgspec.ValidationError: it is none.

    """
    try:
        volume = f"rollcall-{fields['header']['app']}"
        if fields.get("new_volume"):
            fields = {**fields, "new_volumes": [volume]}
        # A failed app does not own volumes that were there before it.
        if fields["type"] == "delete" and not (fields["keep_data"] or fields["before"]["failed"]):
            fields = {**fields, "volumes": [volume]}
    except (LookupError, TypeError, AttributeError) as error:
        raise msgspec.ValidationError(f"a row of the journal cannot be read: {error!r}") from error
    entry: JournalEntry = msgspec.convert(fields, JournalEntry)
    return entry


def fields_from_change(change: Any) -> dict[str, Any]:
    """Return a row of version 3 for one of 1 or 2; msgspec.ValidationError if it is none."""
    try:
        return {**change, **_type_fields(change), "header": _header(change)}
    except (LookupError, TypeError) as error:
        raise msgspec.ValidationError(f"a row of the journal cannot be read: {error!r}") from error


def _header(change: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "operation", "app", "by", "since")
    return {**{name: change[name] for name in names}, "background": change["promised"]}


def _type_fields(change: dict[str, Any]) -> dict[str, Any]:
    operation, before, target = change["operation"], change["before"], change["target"]
    if operation in TYPES:
        return {"type": TYPES[operation]}
    if change["swapped"]:
        old, new = before["container_id"], target["container_id"]
        return {
            "type": "replaced",
            "container_id": new,
            "old_container_id": old if old != new else None,
        }
    if operation == "start":
        makes_container = before["container_id"] is None or change["new_volume"]
        return {"type": "replace" if makes_container else "start"}
    differing = {field for field in target if target[field] != before[field]}
    if differing and differing <= LIVE_FIELDS:
        return {"type": "limits", "container_id": before["container_id"]}
    return {"type": "replace"}


def _add_events(connection: sqlite3.Connection) -> None:
    for statement in CREATE_EVENTS_TABLES:
        connection.execute(statement)


def _add_pulls(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE_PULLS_TABLE)


# Each makes a database of the version before one of its version.
STEPS: tuple[tuple[int, Callable[[sqlite3.Connection], None]], ...] = (
    (2, _add_undone),
    (3, _add_types),
    (4, _add_volumes),
    (5, _leave_down),
    (6, add_history),
    (7, _add_events),
    (8, _add_pulls),
)
