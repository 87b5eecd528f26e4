"""The rows of the agent's database: what it holds, and what writes an app and its operation."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent.journal import JournalEntry
from agent.model import App
from agent.state.history import (
    Event,
    Pull,
    Revision,
    RevisionImage,
    Statement,
    latest_events,
    read_images,
    read_pulled,
    read_pulls,
    revision_statements,
    run_events,
)

ENTRY_DECODER: msgspec.json.Decoder[JournalEntry] = msgspec.json.Decoder(JournalEntry)
VOLUMES_DECODER = msgspec.json.Decoder(dict[str, str])
# The number of ids of undone operations that are kept; a container that one made is an orphan.
MAX_UNDONE = 1024


@dataclass(frozen=True)
class StoredState:
    """All that the database holds, without the fields of revisions and former events.

    Attributes:
        adopted: Containers of an earlier database, now lost, were looked for.
        apps: All apps, by name.
        entries: The journal: operations that have not ended.
        undone: The ids of operations that were undone.
        kept_data: The volumes, by path, that a deleted app has left, by the app's name.
        images: The images of the revisions of all apps, by app and revision.
        pulled: The tags that images got when the agent pulled them, by the image's id.
        pulls: The pulls that have begun and not ended.
        latest_events: The last events of all apps, the oldest first.
        run_events: More of them, of the apps that exist.

    """

    adopted: bool
    apps: list[App]
    entries: list[JournalEntry]
    undone: list[str]
    kept_data: dict[str, dict[str, str]]
    images: list[RevisionImage]
    pulled: Mapping[str, frozenset[str]]
    pulls: list[Pull]
    latest_events: list[Event]
    run_events: list[Event]


@dataclass(frozen=True, kw_only=True)
class AppTransaction:
    """What is written of one app, all of it or nothing.

    Attributes:
        name: The app's name.
        app: The app as it is from now on, None if it is gone.
        ends_operation: The entry of the app is removed from the journal.
        undone: The id of an operation whose containers are orphans from now on.
        kept_data: The volumes, by path, that the app leaves; None: as they are, empty: none.
        revision: What the app is from now on, or the image of its present revision.
        event: What happened to the app.

    """

    name: str
    app: App | None
    ends_operation: bool = False
    undone: str | None = None
    kept_data: dict[str, str] | None = None
    revision: Revision | RevisionImage | None = None
    event: Event | None = None

    def statements(self) -> list[Statement]:
        """Return the statements that write all but the event."""
        name = (self.name,)
        written = [app_statement(self.name, self.app)]
        if self.ends_operation:
            written.append(("DELETE FROM journal WHERE app = ?", name))
        if self.undone is not None:
            written += undone_statements(self.undone)
        if self.kept_data:
            row = (self.name, msgspec.json.encode(self.kept_data))
            written.append(("REPLACE INTO kept_data VALUES (?, ?)", row))
        elif self.kept_data is not None:
            written.append(("DELETE FROM kept_data WHERE app = ?", name))
        if self.app is None:
            written.append(("DELETE FROM revisions WHERE app = ?", name))
        if self.revision is not None:
            written += revision_statements(self.revision)
        return written


def read_state(connection: sqlite3.Connection) -> StoredState:
    """Return what the database holds; sqlite3.Error, msgspec.MsgspecError."""
    facts = dict(connection.execute("SELECT name, value FROM facts"))
    apps = connection.execute("SELECT app FROM apps ORDER BY name")
    entries = connection.execute("SELECT entry FROM journal ORDER BY app")
    undone = connection.execute("SELECT change FROM undone ORDER BY rowid")
    kept = connection.execute("SELECT app, volumes FROM kept_data")
    try:
        return StoredState(
            adopted=facts["adopted"] == "yes",
            apps=[msgspec.json.decode(row[0], type=App) for row in apps],
            entries=[ENTRY_DECODER.decode(row[0]) for row in entries],
            undone=[row[0] for row in undone],
            kept_data={row[0]: VOLUMES_DECODER.decode(row[1]) for row in kept},
            images=read_images(connection),
            pulled=read_pulled(connection),
            pulls=read_pulls(connection),
            latest_events=latest_events(connection),
            run_events=run_events(connection),
        )
    except KeyError as error:
        raise sqlite3.DatabaseError("a fact is missing in it") from error


def app_statement(name: str, app: App | None) -> Statement:
    """Return the statement that writes an app, or removes it."""
    if app is None:
        return "DELETE FROM apps WHERE name = ?", (name,)
    return "REPLACE INTO apps VALUES (?, ?)", (name, msgspec.json.encode(app))


def undone_statements(operation: str) -> list[Statement]:
    """Return the statements that note an undone operation, and remove the oldest of these notes."""
    oldest = "DELETE FROM undone WHERE rowid <= (SELECT max(rowid) FROM undone) - ?"
    return [("INSERT OR IGNORE INTO undone VALUES (?)", (operation,)), (oldest, (MAX_UNDONE,))]
