"""Databases of earlier versions, brought up to the present schema."""

import sqlite3
from typing import Any

import msgspec

from agent.model import JournalEntry

CREATE_UNDONE_TABLE = "CREATE TABLE undone (change TEXT PRIMARY KEY)"
CREATE_JOURNAL_TABLE = (
    "CREATE TABLE journal (app TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID"
)
# What these versions changed in the running container.
LIVE_FIELDS = frozenset({"cpu", "memory"})
TYPES = {"create": "create", "stop": "stop", "delete": "delete", "keys": "password"}


def migrate(connection: sqlite3.Connection, *, version: int, to_version: int) -> None:
    """Bring a database of the schema ``version``, 1 or 2, up to date: all of it, or nothing.

    Version 1 had no table `undone`. Both had one type for all rows of the journal.

    Raises:
        sqlite3.Error, msgspec.MsgspecError: the database is as it was.

    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version == 1:
            connection.execute(CREATE_UNDONE_TABLE)
        connection.execute(CREATE_JOURNAL_TABLE)
        for app, row in connection.execute("SELECT app, change FROM changes").fetchall():
            entry = msgspec.json.encode(entry_from_change(msgspec.json.decode(row)))
            connection.execute("INSERT INTO journal VALUES (?, ?)", (app, entry))
        connection.execute("DROP TABLE changes")
        connection.execute(f"PRAGMA user_version = {to_version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def entry_from_change(change: Any) -> JournalEntry:
    """Return the entry for a row of version 1 or 2; msgspec.ValidationError if it is none."""
    try:
        fields = {**change, **_type_fields(change), "header": _header(change)}
    except (LookupError, TypeError) as error:
        raise msgspec.ValidationError(f"a row of the journal cannot be read: {error!r}") from error
    entry: JournalEntry = msgspec.convert(fields, JournalEntry)
    return entry


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
