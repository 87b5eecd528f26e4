"""The model: what can be asked for of an app, the apps, and the journal of operations on them."""

from datetime import UTC, datetime
from enum import Enum, auto
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

PullPolicy = Literal["always", "missing", "never"]
DesiredState = Literal["running", "stopped"]
# "keys" sets the password: the operation is named after its path in the API.
OperationKind = Literal["create", "update", "rebuild", "start", "stop", "delete", "keys", "label"]


StopSeconds = Annotated[int, msgspec.Meta(ge=0, le=3600)]
# Clients that cannot leave out a field send 0.
ZERO_IS_UNSET = frozenset({"ssh_port", "http_port", "cpu", "memory", "ssh_target", "http_target"})


class FieldKind(Enum):
    """What a change of a field of an app takes."""

    FIXED = auto()
    """It is chosen when the app is created, and never changes."""
    LIVE = auto()
    """It is changed in the running container, whose limits show the value."""
    REPLACING = auto()
    """The container is replaced by another."""
    METADATA = auto()
    """Only the record changes."""


class AppSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked for: the one list of fields.

    The bodies of create and update, the app, its record, the label of its container and the journal
    derive from it. A field that is added needs a default: stored apps and labels of containers that
    were written before do not have it.

    Attributes:
        name: Names the app, its container and its volume.
        image: The reference of the container image.
        ssh_port: The host's port that leads to the app's SSH port.
        http_port: The host's port that leads to the app's HTTP port.
        cpu: The limit of CPU time, in percent of one core.
        memory: The limit of memory, in MiB.
        env: The environment.
        description: Any text.
        command: What the container runs. Empty: what its image says.
        ssh_target: The port in the container that ``ssh_port`` leads to, None: as the image says.
        http_target: The port in the container that ``http_port`` leads to, None: as the image says.
        stop_seconds: The time between the request to end and the kill, None: as is configured.
        pull: When the image is pulled: ``always`` where the app is created, rebuilt or gets another
            image; ``missing``, where it is not on the host, and for a rebuild; ``never``.
        data: The paths in the container that keep their files. Empty: those that the image names.

    """

    name: Annotated[str, FieldKind.FIXED]
    image: Annotated[str, FieldKind.REPLACING]
    ssh_port: Annotated[int, FieldKind.REPLACING]
    http_port: Annotated[int, FieldKind.REPLACING]
    cpu: Annotated[int, FieldKind.LIVE]
    memory: Annotated[int, FieldKind.LIVE]
    env: Annotated[dict[str, str], FieldKind.REPLACING] = msgspec.field(default_factory=dict)
    description: Annotated[str, FieldKind.METADATA, msgspec.Meta(max_length=1024)] = ""
    command: Annotated[tuple[str, ...], FieldKind.REPLACING, msgspec.Meta(max_length=1024)] = ()
    ssh_target: Annotated[int | None, FieldKind.REPLACING] = None
    http_target: Annotated[int | None, FieldKind.REPLACING] = None
    stop_seconds: Annotated[StopSeconds | None, FieldKind.METADATA] = None
    pull: Annotated[PullPolicy, FieldKind.METADATA] = "always"
    data: Annotated[tuple[str, ...], FieldKind.REPLACING, msgspec.Meta(max_length=16)] = ()


_TYPES = get_type_hints(AppSpec, include_extras=True)
FIELD_KINDS: dict[str, FieldKind] = {
    name: next(each for each in _TYPES[name].__metadata__ if isinstance(each, FieldKind))
    for name in AppSpec.__struct_fields__
}


def _body(name: str, *, required: tuple[str, ...], without: FieldKind | None = None) -> Any:
    """Make the type of a body that may hold fields of an AppSpec, and nothing else."""
    return msgspec.defstruct(
        name,
        [
            (field, _TYPES[field])
            if field in required
            else (field, _TYPES[field] | msgspec.UnsetType, msgspec.UNSET)
            for field, kind in FIELD_KINDS.items()
            if kind is not without
        ],
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        module=__name__,
    )


_NewApp: Any = _body("_NewApp", required=("name", "image"))
_AppChanges: Any = _body("_AppChanges", required=(), without=FieldKind.FIXED)


class NewApp(_NewApp):
    """What a create asks for. The agent chooses ports and limits that are 0 or left out."""


class AppChanges(_AppChanges):
    """What an update asks for. What is left out stays, and so do ports and limits that are 0."""


def given_values(body: NewApp | AppChanges) -> dict[str, Any]:
    """Return the fields that a body holds; a number that is 0 counts as left out."""
    return {
        field: value
        for field, value in msgspec.structs.asdict(body).items()
        if value is not msgspec.UNSET and not (field in ZERO_IS_UNSET and value == 0)
    }


def spec_values(app: AppSpec) -> dict[str, Any]:
    """Return the fields of the AppSpec in an app."""
    return {field: getattr(app, field) for field in FIELD_KINDS}


class App(AppSpec, frozen=True, kw_only=True):
    """An app as it was asked for, and which container it has.

    Attributes:
        created_at: When it was created, in RFC 3339.
        labels: Its labels, ``key:value``.
        desired: Whether it should run.
        container_id: Its container, None before the first one is made.
        image_id: The image that it runs, None if its next container may be made of another one.
        volumes: The volume of each path that has one, mounted now or not. Empty: none was made, or
            a version of before this field made the container, whose mounts tell.
        password: The crypt hash of the password of its user.
        password_pending: The container does not have the password yet.
        failed: Its creation in the background failed.
        message: Why the last operation failed.

    """

    created_at: str
    labels: tuple[str, ...] = ()
    desired: DesiredState = "running"
    container_id: str | None = None
    image_id: str | None = None
    volumes: dict[str, str] = {}
    password: str | None = None
    password_pending: bool = False
    failed: bool = False
    message: str | None = None

    def __repr__(self) -> str:
        """Show the name alone: other fields hold secrets."""
        return f"App({self.name!r})"


class EntryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for which operation.

    Attributes:
        id: Identifies the operation. The container that it makes is labelled with it.
        operation: What was asked for.
        app: The app's name.
        by: The name of the key that was used.
        since: When the operation began, in Unix seconds.
        background: The client was answered before the operation ended.

    """

    id: str
    operation: OperationKind
    app: str
    by: str
    since: float
    background: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A row of the journal: an operation that has begun and not ended."""

    header: EntryHeader

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

    An update, a rebuild, or the start of an app that has lost its container.

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
    """A container was replaced; the new one is the app's, the old one is still to be removed."""

    target: App
    container_id: str
    old_container_id: str | None = None


class LimitsEntry(Entry, frozen=True, kw_only=True, tag="limits"):
    """The limits of a container are being changed."""

    before: App
    target: App
    container_id: str


class StartEntry(Entry, frozen=True, kw_only=True, tag="start"):
    """A container is being started."""

    before: App
    target: App


class StopEntry(Entry, frozen=True, kw_only=True, tag="stop"):
    """A container is being stopped."""

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
    | DeleteEntry
    | PasswordEntry
)


def rfc3339(moment: float) -> str:
    """Return a Unix time as RFC 3339 in UTC, in whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
