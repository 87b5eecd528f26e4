"""Databases of earlier versions, brought up to the present schema.

Version 2 added the table `undone`, version 3 a type for each kind of row in the journal, version 4
the table `kept_data` and the names of volumes in the journal.
"""

import sqlite3
from typing import Any

import msgspec

from agent.model import JournalEntry

CREATE_UNDONE_TABLE = "CREATE TABLE undone (change TEXT PRIMARY KEY)"
CREATE_JOURNAL_TABLE = (
    "CREATE TABLE journal (app TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID"
)
CREATE_KEPT_DATA_TABLE = (
    "CREATE TABLE kept_data (app TEXT PRIMARY KEY, volumes BLOB NOT NULL) WITHOUT ROWID"
)
WITH_TYPES = 3
# What these versions changed in the running container.
LIVE_FIELDS = frozenset({"cpu", "memory"})
TYPES = {"create": "create", "stop": "stop", "delete": "delete", "keys": "password"}


def migrate(connection: sqlite3.Connection, *, version: int, to_version: int) -> None:
    """Bring a database of the schema ``version``, 1 to 3, up to date: all of it, or nothing.

    Raises:
        sqlite3.Error, msgspec.MsgspecError: the database is as it was.

    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version == 1:
            connection.execute(CREATE_UNDONE_TABLE)
        if version < WITH_TYPES:
            _add_types(connection)
        _add_names_of_volumes(connection)
        connection.execute(CREATE_KEPT_DATA_TABLE)
        connection.execute(f"PRAGMA user_version = {to_version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_types(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE_JOURNAL_TABLE)
    for app, row in connection.execute("SELECT app, change FROM changes").fetchall():
        entry = msgspec.json.encode(fields_from_change(msgspec.json.decode(row)))
        connection.execute("INSERT INTO journal VALUES (?, ?)", (app, entry))
    connection.execute("DROP TABLE changes")


def _add_names_of_volumes(connection: sqlite3.Connection) -> None:
    for app, row in connection.execute("SELECT app, entry FROM journal").fetchall():
        entry = msgspec.json.encode(entry_with_volumes(msgspec.json.decode(row)))
        connection.execute("UPDATE journal SET entry = ? WHERE app = ?", (entry, app))


def entry_with_volumes(fields: Any) -> JournalEntry:
    """Return the entry for a row of version 3, in which an app had one volume, named after it.

    Raises:
        msgspec.ValidationError: it is none.

    """
    try:
        volume = f"rollcall-{fields['header']['app']}"
        if fields.get("new_volume"):
            fields = {**fields, "new_volumes": [volume]}
        # Data that a failed app found was never its own.
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
