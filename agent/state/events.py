"""The events of apps, as the database keeps them."""

import sqlite3
from collections import Counter
from datetime import UTC, datetime
from typing import Literal

import msgspec

from agent.journal import Actor

MAX_EVENTS_OF_AN_APP = 1000
# Of these, what the engine and the agent itself do: a crash loop leaves what keys did.
MAX_OWN_EVENTS = 500
# The number of deleted apps whose events are kept.
MAX_FORMER_APPS = 100
MAX_MESSAGE_LENGTH = 1000
# The number of latest events that are read at the start, for clients that follow events.
MAX_LATEST = 1000
# The number of events from which the restarts of apps are counted at the start.
MAX_RUN_EVENTS = 20_000
CREATE_EVENTS_TABLES = (
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL, event BLOB NOT NULL
    )""",
    "CREATE INDEX events_of_apps ON events (app, number)",
    "CREATE TABLE former_apps (number INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL UNIQUE)",
)

# In JSON, no text holds such quotes without a backslash before them.
OWN = {"engine": b'"actor":"engine"', "agent": b'"actor":"agent"'}
SHORTEN = """
    DELETE FROM events
    WHERE app = :app AND (:all OR instr(event, :engine) OR instr(event, :agent))
    AND number <= (
        SELECT number FROM events
        WHERE app = :app AND (:all OR instr(event, :engine) OR instr(event, :agent))
        ORDER BY number DESC LIMIT 1 OFFSET :most
    )"""

Outcome = Literal["done", "failed", "cancelled"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to an app.

    Attributes:
        number: Its place among the events of all apps, 0 until it is written.
        time: When it happened, in Unix seconds.
        app: The app's name.
        by: The name of the key that asked for it, ``agent`` or ``engine``.
        actor: Which of these it is: a key may be called so, too. None in an event that a version
            without this field wrote.
        action: The operation, or the engine's word.
        outcome: How the operation ended, None for what the engine tells.
        message: Why it failed, or what else is known of it.
        exit_code: That of a container that ended.
        changed: The fields of the app that have another value than before; ``image_id``: it runs
            another image.
        revision: The number of the revision that the operation made, None if it made none.

    """

    number: int = 0
    time: float
    app: str
    by: str
    actor: Actor | None = None
    action: str
    outcome: Outcome | None = None
    message: str | None = None
    exit_code: int | None = None
    changed: tuple[str, ...] = ()
    revision: int | None = None

    @property
    def id(self) -> str:
        """What identifies the event, also among those of another database."""
        return f"{self.number}-{self.milliseconds:x}"

    @property
    def milliseconds(self) -> int:
        """The time in Unix milliseconds."""
        return int(self.time * 1000)

    @property
    def rfc3339(self) -> str:
        """The time in RFC 3339, in UTC."""
        moment = datetime.fromtimestamp(self.milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


EVENT_DECODER = msgspec.json.Decoder(Event)


def add_event(connection: sqlite3.Connection, event: Event) -> Event:
    """Write an event, and remove the oldest beyond the limits; return it with its number.

    The app has been written before, in the same transaction, or removed.
    """
    shortened = event.message[:MAX_MESSAGE_LENGTH] if event.message else None
    event = msgspec.structs.replace(event, message=shortened)
    row = (event.app, msgspec.json.encode(event))
    number = connection.execute("INSERT INTO events (app, event) VALUES (?, ?)", row).lastrowid
    own = {"app": event.app, "all": False, "most": MAX_OWN_EVENTS, **OWN}
    if event.actor in OWN:
        connection.execute(SHORTEN, own)
    connection.execute(SHORTEN, {**own, "all": True, "most": MAX_EVENTS_OF_AN_APP})
    _note_former(connection, event.app)
    return msgspec.structs.replace(event, number=number or 0)


def _note_former(connection: sqlite3.Connection, app: str) -> None:
    """Record whether an app is gone; remove the events of apps that went long before.

    They are those of whoever ended the most apps, so that nobody can remove those of others.
    """
    exists = connection.execute(
        "SELECT 1 FROM apps WHERE name = ? UNION SELECT 1 FROM journal WHERE app = ?", (app, app)
    ).fetchone()
    if exists:
        connection.execute("DELETE FROM former_apps WHERE app = ?", (app,))
        return
    connection.execute("REPLACE INTO former_apps (app) VALUES (?)", (app,))
    (count,) = connection.execute("SELECT count(*) FROM former_apps").fetchone()
    if count <= MAX_FORMER_APPS:
        return
    last = connection.execute(
        "SELECT app, number, event FROM events WHERE number IN (SELECT max(events.number)"
        " FROM former_apps JOIN events USING (app) GROUP BY app) ORDER BY number"
    ).fetchall()
    ended_by = {app: _event(number, row).by for app, number, row in last}
    for _ in range(count - MAX_FORMER_APPS):
        ((busiest, _count),) = Counter(ended_by.values()).most_common(1)
        forgotten = next(each for each, by in ended_by.items() if by == busiest)
        del ended_by[forgotten]
        connection.execute("DELETE FROM events WHERE app = ?", (forgotten,))
        connection.execute("DELETE FROM former_apps WHERE app = ?", (forgotten,))


def events_of_app(connection: sqlite3.Connection, app: str) -> list[Event]:
    """Return the events of an app, the oldest first."""
    query = "SELECT number, event FROM events WHERE app = ? ORDER BY number"
    return [_event(*row) for row in connection.execute(query, (app,))]


def latest_events(connection: sqlite3.Connection) -> list[Event]:
    """Return the last events of all apps without a gap between their numbers, the oldest first."""
    query = "SELECT number, event FROM events ORDER BY number DESC LIMIT ?"
    found = list[Event]()
    for number, row in connection.execute(query, (MAX_LATEST,)):
        if found and number != found[-1].number - 1:
            break
        found.append(_event(number, row))
    return found[::-1]


def run_events(connection: sqlite3.Connection) -> list[Event]:
    """Return the last events of the apps that exist, the oldest first."""
    query = (
        "SELECT number, event FROM events WHERE app IN (SELECT name FROM apps)"
        " ORDER BY number DESC LIMIT ?"
    )
    return [_event(*row) for row in connection.execute(query, (MAX_RUN_EVENTS,))][::-1]


def _event(number: int, row: bytes) -> Event:
    return msgspec.structs.replace(EVENT_DECODER.decode(row), number=number)
