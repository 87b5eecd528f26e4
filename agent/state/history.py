"""The history in the database: events, revisions, pulls, and the images that the agent pulled."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from agent.journal import Actor, OperationKind
from agent.model import AppSpec

# The text of a statement of SQL, and its values.
Statement: TypeAlias = tuple[str, tuple[object, ...]]
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
# The number of revisions of an app that are kept.
MOST_REVISIONS = 10
CREATE_REVISIONS_TABLE = (
    "CREATE TABLE revisions (app TEXT NOT NULL, revision INTEGER NOT NULL, fields BLOB NOT NULL,"
    " image_id TEXT, digest TEXT, PRIMARY KEY (app, revision)) WITHOUT ROWID"
)
CREATE_PULLED_IMAGES_TABLE = (
    "CREATE TABLE pulled_images (image_id TEXT PRIMARY KEY, tags BLOB NOT NULL) WITHOUT ROWID"
)
CREATE_PULLS_TABLE = (
    "CREATE TABLE pulls (reference TEXT PRIMARY KEY, began_at REAL NOT NULL,"
    " alive_at REAL NOT NULL, images BLOB NOT NULL) WITHOUT ROWID"
)
SET_IMAGE = (
    "UPDATE revisions SET image_id = ?, digest = ? WHERE app = ? AND revision = ?"
    " AND (image_id IS NULL OR image_id = ?)"
)
# The tags are a JSON array of texts. Two pulls of an image may end at the same time.
ADD_PULLED_IMAGE = """
INSERT INTO pulled_images VALUES (?, ?) ON CONFLICT (image_id) DO UPDATE SET tags = CAST((
    SELECT json_group_array(value) FROM (
        SELECT value FROM json_each(CAST(tags AS TEXT))
        UNION SELECT value FROM json_each(CAST(excluded.tags AS TEXT))
    )
) AS BLOB)
"""
_TAGS = msgspec.json.Decoder(frozenset[str])
_IMAGES = msgspec.json.Decoder(dict[str, frozenset[str]] | None)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to an app.

    Attributes:
        number: Its place among the events of all apps, 0 until it is written.
        time: When it happened, in Unix seconds.
        app: The app's name.
        by: The name of the key that asked for it, ``agent`` or ``engine``.
        actor: Which of these it is: a key may be called so, too.
        action: The operation, or the engine's word.
        outcome: How the operation ended, None for an event of the engine.
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
    actor: Actor = "key"
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


class Revision(AppSpec, frozen=True, kw_only=True):
    """An app as a change has left it: its fields and its image.

    Attributes:
        revision: 1 for the app's first, and one more for each that follows.
        created_at: When the change began, in RFC 3339.
        by: The name of the key that asked for it, None where nobody did.
        operation: What was asked for. ``adopt``: it was read from its container.
        changed: The fields that the change has changed, ``image_id`` among them; none in the first.
        rollback_to: The revision that a rollback brought back, None for any other operation.
        image_id: The image that the app ran, None if no container was made of it.
        digest: How a server of images knows that image, ``NAME@sha256:HEX``; None if none does.

    """

    revision: int
    created_at: str
    by: str | None = None
    operation: OperationKind | Literal["adopt"]
    changed: tuple[str, ...] = ()
    rollback_to: int | None = None
    image_id: str | None = None
    digest: str | None = None

    def __repr__(self) -> str:
        """Show only the name and the number: other fields hold secrets."""
        return f"Revision({self.name!r}, {self.revision})"


class RevisionImage(msgspec.Struct, frozen=True, kw_only=True):
    """The image of a revision, which the agent keeps."""

    app: str
    revision: int
    created_at: str
    image_id: str | None
    digest: str | None


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """A pull that has begun and not ended, as far as the agent has written.

    Attributes:
        reference: What is pulled.
        began_at: A Unix time before the engine was asked for it.
        alive_at: The last Unix time at which the agent was still waiting for it.
        images: The tags of the images that were on the host before, by the image's id; None if
            that is not known.

    """

    reference: str
    began_at: float
    alive_at: float
    images: Mapping[str, frozenset[str]] | None


class _Stamp(msgspec.Struct):
    created_at: str


def image_of(revision: Revision) -> RevisionImage:
    """Return the image of a revision."""
    return RevisionImage(
        app=revision.name,
        revision=revision.revision,
        created_at=revision.created_at,
        image_id=revision.image_id,
        digest=revision.digest,
    )


def revision_statements(revision: Revision | RevisionImage) -> list[Statement]:
    """Return the statements that write a revision, or the image of one that is written already.

    Revisions beyond the last ten are removed.
    """
    if isinstance(revision, RevisionImage):
        image_id, key = revision.image_id, (revision.app, revision.revision)
        return [(SET_IMAGE, (image_id, revision.digest, *key, image_id))]
    name, number = revision.name, revision.revision
    row = (name, number, msgspec.json.encode(revision), revision.image_id, revision.digest)
    beyond = (name, number - MOST_REVISIONS)
    return [
        ("REPLACE INTO revisions VALUES (?, ?, ?, ?, ?)", row),
        ("DELETE FROM revisions WHERE app = ? AND revision <= ?", beyond),
    ]


def read_revisions(connection: sqlite3.Connection, app: str) -> list[Revision]:
    """Return the revisions of an app, the newest first."""
    rows = connection.execute(
        "SELECT fields, image_id, digest FROM revisions WHERE app = ? ORDER BY revision DESC",
        (app,),
    )
    return [
        msgspec.structs.replace(
            msgspec.json.decode(fields, type=Revision), image_id=image_id, digest=digest
        )
        for fields, image_id, digest in rows
    ]


def read_images(connection: sqlite3.Connection) -> list[RevisionImage]:
    """Return the images of all revisions, by app and revision."""
    rows = connection.execute("SELECT * FROM revisions ORDER BY app, revision")
    return [
        RevisionImage(
            app=app,
            revision=revision,
            created_at=msgspec.json.decode(fields, type=_Stamp).created_at,
            image_id=image_id,
            digest=digest,
        )
        for app, revision, fields, image_id, digest in rows
    ]


def read_pulled(connection: sqlite3.Connection) -> Mapping[str, frozenset[str]]:
    """Return the tags that images got when the agent pulled them, by the image's id."""
    rows = connection.execute("SELECT image_id, tags FROM pulled_images")
    return {image_id: _TAGS.decode(tags) for image_id, tags in rows}


def read_pulls(connection: sqlite3.Connection) -> list[Pull]:
    """Return the pulls that have begun and not ended."""
    rows = connection.execute("SELECT reference, began_at, alive_at, images FROM pulls")
    return [
        Pull(
            reference=reference,
            began_at=began_at,
            alive_at=alive_at,
            images=_IMAGES.decode(images),
        )
        for reference, began_at, alive_at, images in rows
    ]
