"""The journal: the operations on apps that have begun and not ended, by the type of each."""

from typing import Literal

import msgspec

from agent.model import App

# "keys" sets the password: the operation is named after its path in the API.
OperationKind = Literal[
    "create",
    "update",
    "rebuild",
    "rollback",
    "start",
    "stop",
    "restart",
    "delete",
    "keys",
    "label",
    "export",
    "restore",
]
# Who began something: somebody with a key, the agent by itself, or the container engine.
Actor = Literal["key", "agent", "engine"]


class EntryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for which operation.

    Attributes:
        id: Identifies the operation. The container that it makes is labelled with it.
        operation: What was asked for.
        app: The app's name.
        by: The name of the key that was used, or ``agent``.
        actor: Whether ``by`` is a key or the agent itself.
        since: When the operation began, in Unix seconds.
        background: The client was answered before the operation ended.
        revision: The revision that a rollback brings back, None for any other operation.
        reason: Why the agent began it, or what else its event is to tell.

    """

    id: str
    operation: OperationKind
    app: str
    by: str
    actor: Actor = "key"
    since: float
    background: bool = False
    revision: int | None = None
    reason: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A row of the journal: an operation that has begun and not ended.

    ``withdrawn_at`` is when the label ``serving:`` of the app was withdrawn, in Unix seconds, since
    the operation is to stop its container; None before.
    """

    header: EntryHeader
    withdrawn_at: float | None = None

    @property
    def id(self) -> str:
        """The id of the operation."""
        return self.header.id

    @property
    def app(self) -> str:
        """The app's name."""
        return self.header.app

    def __repr__(self) -> str:
        """Show what it is about, and nothing that may be secret."""
        return f"{type(self).__name__}({self.header!r})"


class CreateEntry(Entry, frozen=True, kw_only=True, tag="create"):
    """An app is being created. ``new_volumes`` names those that the operation makes."""

    target: App
    new_volumes: tuple[str, ...] = ()


class ReplaceEntry(Entry, frozen=True, kw_only=True, tag="replace"):
    """A container is being replaced; up to now the old one is the app's.

    An update, a rebuild, the start of an app that has lost its container, or a restore of its data,
    which fills ``new_volumes`` first.

    Attributes:
        before: The app as it was.
        target: The app as it shall be.
        was_running: The old container was up.
        new_volumes: The names of the volumes that the operation makes.

    """

    before: App
    target: App
    was_running: bool = False
    new_volumes: tuple[str, ...] = ()


class ReplacedEntry(Entry, frozen=True, kw_only=True, tag="replaced"):
    """A container was replaced; the new one is the app's, the old one is still to be removed.

    ``old_volumes`` names those that the app has no longer, which are to be removed after it.
    """

    target: App
    container_id: str
    old_container_id: str | None = None
    old_volumes: tuple[str, ...] = ()


class LimitsEntry(Entry, frozen=True, kw_only=True, tag="limits"):
    """The limits of a container are being changed.

    ``cpu`` and ``memory`` are those that it had, which others may have changed; 0 where there was
    none.
    """

    before: App
    target: App
    container_id: str
    cpu: int
    memory: int


class StartEntry(Entry, frozen=True, kw_only=True, tag="start"):
    """A container is being started."""

    before: App
    target: App


class StopEntry(Entry, frozen=True, kw_only=True, tag="stop"):
    """A container is being stopped."""

    target: App


class ExportEntry(Entry, frozen=True, kw_only=True, tag="export"):
    """The container of an app is paused while the app's data is read."""

    target: App


class DeleteEntry(Entry, frozen=True, kw_only=True, tag="delete"):
    """An app is being deleted.

    Attributes:
        before: The app as it was.
        keep_data: Its volumes stay, and so does the map of ``before``.
        volumes: The names of the volumes to remove.

    """

    before: App
    keep_data: bool = False
    volumes: tuple[str, ...] = ()


class PasswordEntry(Entry, frozen=True, kw_only=True, tag="password"):
    """The password of an app is being set."""

    before: App
    target: App


JournalEntry = (
    CreateEntry
    | ReplaceEntry
    | ReplacedEntry
    | LimitsEntry
    | StartEntry
    | StopEntry
    | ExportEntry
    | DeleteEntry
    | PasswordEntry
)
