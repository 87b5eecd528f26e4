"""The model: what can be asked for of an app, and the apps."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

PullPolicy = Literal["always", "missing", "never"]
DesiredState = Literal["running", "stopped"]
APP_NAME_PATTERN = r"[a-z0-9][a-z0-9_.-]{1,62}"
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


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to find out whether an app is healthy: by a request or by a command.

    Attributes:
        path: What is asked for over HTTP at the app's ``http_port``.
        command: What is run in the container.
        interval_seconds: The time between two checks.
        timeout_seconds: The time that one check may take.
        retries: So many failures in a row make the app unhealthy.
        start_seconds: Failures so soon after a start do not count.

    """

    path: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    command: Annotated[tuple[str, ...], msgspec.Meta(max_length=1024)] | None = None
    interval_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 30
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=120)] = 5
    retries: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    start_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 0

    @property
    def seconds(self) -> int:
        """The time after a start in which it has decided."""
        needed = self.retries * (self.interval_seconds + self.timeout_seconds)
        return self.start_seconds + needed

    @property
    def seconds_without_program(self) -> int:
        """The same where each run of its command fails at once."""
        return self.start_seconds + self.retries * self.interval_seconds


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
        drain_seconds: The time between the withdrawal of its label ``serving:`` and a stop.
        pull: When the image is pulled: ``always`` where the app is created, rebuilt or gets another
            image; ``missing``, where it is not on the host, and for a rebuild; ``never``.
        data: The paths in the container that keep their files. Empty: those that the image names.
        health: How the agent finds out whether it is healthy, None: it does not.

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
    stop_seconds: Annotated[StopSeconds | None, FieldKind.REPLACING] = None
    drain_seconds: Annotated[StopSeconds, FieldKind.METADATA] = 0
    pull: Annotated[PullPolicy, FieldKind.REPLACING] = "always"
    data: Annotated[tuple[str, ...], FieldKind.REPLACING, msgspec.Meta(max_length=16)] = ()
    health: Annotated[HealthCheck | None, FieldKind.METADATA] = None


_TYPES = get_type_hints(AppSpec, include_extras=True)
FIELD_KINDS: dict[str, FieldKind] = {
    name: next(each for each in _TYPES[name].__metadata__ if isinstance(each, FieldKind))
    for name in AppSpec.__struct_fields__
}


def _body(
    name: str,
    *,
    required: tuple[str, ...],
    without: FieldKind | None = None,
    optional: Mapping[str, Any] | None = None,
) -> Any:
    """Make the type of a body that may hold fields of an AppSpec and these optional ones."""
    return msgspec.defstruct(
        name,
        [
            (field, _TYPES[field])
            if field in required
            else (field, _TYPES[field] | msgspec.UnsetType, msgspec.UNSET)
            for field, kind in FIELD_KINDS.items()
            if kind is not without
        ]
        + [
            (field, kind | msgspec.UnsetType, msgspec.UNSET)
            for field, kind in (optional or {}).items()
        ],
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        module=__name__,
    )


_NewApp: Any = _body("_NewApp", required=("name", "image"))
_AppChanges: Any = _body(
    "_AppChanges",
    required=(),
    without=FieldKind.FIXED,
    optional={
        "env_set": dict[str, str],
        "env_unset": Annotated[tuple[str, ...], msgspec.Meta(max_length=1024)],
    },
)


class NewApp(_NewApp):
    """What a create asks for. The agent chooses ports and limits that are 0 or left out."""


class AppChanges(_AppChanges):
    """What an update asks for. What is left out stays, and so do ports and limits that are 0.

    ``env_set`` and ``env_unset`` change single variables of ``env``.
    """


def with_whole_env(changes: AppChanges, env: Mapping[str, str]) -> AppChanges:
    """Return the changes with the whole environment that they make of ``env``, if any."""
    added, removed = changes.env_set or {}, changes.env_unset or ()
    if not added and not removed:
        whole = changes.env
    else:
        kept = {name: value for name, value in env.items() if name not in removed}
        whole = {**kept, **added}
    return msgspec.structs.replace(
        changes, env=whole, env_set=msgspec.UNSET, env_unset=msgspec.UNSET
    )


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


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """Why an app that should run is down.

    Attributes:
        cause: ``stopped``: somebody stopped its container through the engine, and it stays down
            while the run of the engine lasts. ``not_started``: its last start failed, and it is
            tried again.
        engine_run: The id of the run of the engine in which it was stopped.
        tries: How many starts in a row have failed.
        error: Why the last one failed.

    """

    cause: Literal["stopped", "not_started"]
    engine_run: str | None = None
    tries: int = 0
    error: str = ""


class App(AppSpec, frozen=True, kw_only=True):
    """An app as it was asked for, and which container it has.

    Attributes:
        created_at: When it was created, in RFC 3339.
        labels: Its labels, ``key:value``.
        desired: Whether it should run.
        container_id: Its container, None before the first one is made.
        image_id: The image that it runs, None if its next container may be made of another one.
        image_digest: How a server of images knows it, ``NAME@sha256:HEX``, None if none does.
        volumes: The volume of each path that has one, mounted now or not. Empty: none was made.
        password: The crypt hash of the password of its user.
        password_pending: The container does not have the password yet.
        failed: Its creation in the background failed.
        message: Why the last operation failed.
        down: Why it is down although it should run, None if that is not known or it is up.
        revision: The number of its present revision, None as long as it was not created.

    """

    created_at: str
    labels: tuple[str, ...] = ()
    desired: DesiredState = "running"
    container_id: str | None = None
    image_id: str | None = None
    image_digest: str | None = None
    volumes: dict[str, str] = {}
    password: str | None = None
    password_pending: bool = False
    failed: bool = False
    message: str | None = None
    down: Down | None = None
    revision: int | None = None

    def __repr__(self) -> str:
        """Show the name alone: other fields hold secrets."""
        return f"App({self.name!r})"


def with_image(app: App, image_id: str | None) -> App:
    """Return the app with the image that its container runs, the only one with a known digest."""
    digest = app.image_digest if app.image_id == image_id else None
    return msgspec.structs.replace(app, image_id=image_id, image_digest=digest)


def not_started(app: App, error: Exception) -> App:
    """Return an app after a start of it has failed; one that should run is tried again."""
    if app.desired != "running":
        return app
    tries = app.down.tries if app.down is not None else 0
    return msgspec.structs.replace(
        app, down=Down(cause="not_started", tries=tries + 1, error=str(error))
    )


def is_left_down(app: App) -> bool:
    """Return whether an app that should run stays down until somebody starts it."""
    return app.down is not None and app.down.cause != "not_started"


class ForeignObject(msgspec.Struct, frozen=True, kw_only=True):
    """A container or volume of an app that is not this agent's, which leaves it alone.

    Attributes:
        kind: ``container`` or ``volume``.
        name: Its name in the engine.
        app: The name of the app that it carries.
        agent: The identity of the agent that it carries, None if it carries none.

    """

    kind: str
    name: str
    app: str
    agent: str | None


def rfc3339(moment: float) -> str:
    """Return a Unix time as RFC 3339 in UTC, in whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
