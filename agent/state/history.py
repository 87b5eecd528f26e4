"""The history in the database: revisions of apps, pulls, and the images that the agent pulled."""

import sqlite3
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from agent.journal import OperationKind
from agent.model import AppSpec
from agent.state.transactions import Statement

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


def revision_statements(revision: Revision | RevisionImage | None) -> list[Statement]:
    """Return the statements that write a revision, or the image of one that is written already.

    Revisions beyond the last ten are removed.
    """
    if revision is None:
        return []
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


def removal_statements(app: str) -> list[Statement]:
    """Return the statements that remove all revisions of an app."""
    return [("DELETE FROM revisions WHERE app = ?", (app,))]


def pull_begun_statement(pull: Pull) -> Statement:
    """Return the statement that writes a pull, in place of another of the same reference."""
    row = (pull.reference, pull.began_at, pull.alive_at, msgspec.json.encode(pull.images))
    return "REPLACE INTO pulls VALUES (?, ?, ?, ?)", row


def pull_renewed_statement(pull: Pull) -> Statement:
    """Return the statement that writes that the agent still waits for a pull."""
    statement = "UPDATE pulls SET alive_at = ? WHERE reference = ? AND began_at = ?"
    return statement, (pull.alive_at, pull.reference, pull.began_at)


def pull_ended_statements(
    pull: Pull, image_id: str | None, tags: Collection[str]
) -> list[Statement]:
    """Return the statements that write the end of a pull, and the image that it brought, if any.

    ``tags`` are added to those that the image got by earlier pulls.
    """
    # Another pull of this reference may have begun.
    key = (pull.reference, pull.began_at)
    ended: Statement = ("DELETE FROM pulls WHERE reference = ? AND began_at = ?", key)
    if image_id is None:
        return [ended]
    row = (image_id, msgspec.json.encode(sorted(tags)))
    return [ended, (ADD_PULLED_IMAGE, row)]


def unpulled_statement(image_id: str) -> Statement:
    """Return the statement that removes an image that is gone."""
    return "DELETE FROM pulled_images WHERE image_id = ?", (image_id,)


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
