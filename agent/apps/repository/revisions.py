"""The revisions of apps: which change of an app makes one, and which are kept."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from agent.journal import EntryHeader
from agent.model import FIELD_KINDS, App, rfc3339, spec_values
from agent.state.history import MOST_REVISIONS, Revision, RevisionImage, image_of


@dataclass(frozen=True, kw_only=True)
class Revised:
    """An app to write, and the part of its history to write with it.

    That is a revision, or an image that the present revision did not have yet, or neither.
    """

    app: App
    revision: Revision | RevisionImage | None = None

    @property
    def number(self) -> int | None:
        """The number of the new revision, None if there is none."""
        return self.revision.revision if isinstance(self.revision, Revision) else None


def revise(
    before: App | None, app: App, header: EntryHeader | None, *, image: RevisionImage | None
) -> Revised:
    """Return an app as an operation leaves it: a new revision if fields or image have changed.

    The number of its revision is that of ``before``, whatever ``app`` says, or the next one. An
    app whose creation failed has no revision. ``image`` is that of the present revision.
    ``header`` is None for an app that was read from its container.
    """
    number = before.revision if before is not None else None
    app = msgspec.structs.replace(app, revision=number)
    if app.failed:
        return Revised(app=app)
    changed = changed_fields(before, app) if before is not None and number is not None else ()
    if number is None or changed:
        app = msgspec.structs.replace(app, revision=(number or 0) + 1)
        return Revised(app=app, revision=_revision(app, header, changed))
    if image is not None and image.image_id is None and app.image_id is not None:
        filled = msgspec.structs.replace(image, image_id=app.image_id, digest=app.image_digest)
        return Revised(app=app, revision=filled)
    return Revised(app=app)


def changed_fields(before: App, app: App) -> tuple[str, ...]:
    """Return the names of the fields that differ, ``image_id`` among them."""
    fields = tuple(each for each in FIELD_KINDS if getattr(before, each) != getattr(app, each))
    other_image = None not in (before.image_id, app.image_id) and before.image_id != app.image_id
    return (*fields, "image_id") if other_image else fields


def _revision(app: App, header: EntryHeader | None, changed: tuple[str, ...]) -> Revision:
    assert app.revision is not None
    return Revision(
        **spec_values(app),
        revision=app.revision,
        created_at=rfc3339(header.since if header is not None else time.time()),
        by=header.by if header is not None else None,
        operation=header.operation if header is not None else "adopt",
        changed=changed,
        rollback_to=header.revision if header is not None else None,
        image_id=app.image_id,
        digest=app.image_digest,
    )


class KeptRevisions:
    """The images of the revisions that are kept, in memory; the store has the rest of them."""

    def __init__(self, images: Iterable[RevisionImage] = ()) -> None:
        self._by_app: dict[str, dict[int, RevisionImage]] = {}
        for image in images:
            self.keep(image)

    def keep(self, revision: Revision | RevisionImage | None) -> None:
        """Record what was written of a revision; those beyond the last ten are dropped."""
        if revision is None:
            return
        image = image_of(revision) if isinstance(revision, Revision) else revision
        kept = self._by_app.setdefault(image.app, {})
        kept[image.revision] = image
        self._by_app[image.app] = {
            number: each for number, each in kept.items() if number > max(kept) - MOST_REVISIONS
        }

    def fill(self, image: RevisionImage) -> None:
        """Record the image of a revision that has none, or none with a digest, if it is kept."""
        kept = self._by_app.get(image.app, {})
        if image.revision in kept and kept[image.revision].image_id in (None, image.image_id):
            kept[image.revision] = image

    def drop(self, app: str) -> None:
        """Forget the revisions of an app, which is gone."""
        self._by_app.pop(app, None)

    def numbers(self, app: str) -> list[int]:
        """Return the numbers of an app's revisions, the oldest first."""
        return sorted(self._by_app.get(app, ()))

    def image(self, app: App | None) -> RevisionImage | None:
        """Return the image of the app's present revision, None if it has no revision."""
        if app is None or app.revision is None:
            return None
        return self._by_app.get(app.name, {}).get(app.revision)

    def all(self) -> list[RevisionImage]:
        """Return the images of all revisions of all apps."""
        return [each for kept in self._by_app.values() for each in kept.values()]
