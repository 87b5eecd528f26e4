"""The record of an app: what was asked for, and what the engine says."""

from typing import Any, Literal

import msgspec

from agent.apps.containers.spec import NOTE_LABEL
from agent.apps.operations.runner import OperationStatus
from agent.engine.protocol import Container, InspectedContainer
from agent.model import App, AppSpec, rfc3339, spec_values

AppState = Literal[
    "created",
    "running",
    "paused",
    "restarting",
    "removing",
    "exited",
    "dead",
    "pulling",
    "creating",
    "rebuilding",
    "updating",
    "deleting",
    "failed",
    "missing",
]
TRANSITIONAL_STATES = {
    "create": "creating",
    "rebuild": "rebuilding",
    "update": "updating",
    "delete": "deleting",
}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that has not ended; ``percent`` is of the pull, None where no size is known."""

    operation: str
    step: str | None
    percent: int | None
    by: str
    since: str


class AppView(AppSpec, frozen=True, kw_only=True):
    """The record of an app.

    A list leaves out what only an inspect tells: ``started_at`` to ``oom_killed``. Times are RFC
    3339 in UTC.
    """

    labels: tuple[str, ...]
    state: str
    desired: str
    volumes: dict[str, str]
    container_id: str | None
    image_id: str | None
    created_at: str
    started_at: str | msgspec.UnsetType | None = msgspec.UNSET
    finished_at: str | msgspec.UnsetType | None = msgspec.UNSET
    exit_code: int | msgspec.UnsetType | None = msgspec.UNSET
    restarts: int | msgspec.UnsetType | None = msgspec.UNSET
    oom_killed: bool | msgspec.UnsetType | None = msgspec.UNSET
    message: str | None
    password: Literal["set", "pending"] | None
    progress: Progress | None


def summary(app: App, container: Container | None, operation: OperationStatus | None) -> AppView:
    """Return the record as a list shows it."""
    return _view(app, container, operation)


def full(
    app: App, container: InspectedContainer | None, operation: OperationStatus | None
) -> AppView:
    """Return the whole record."""
    ran = container is not None and container.started_at is not None
    return _view(
        app,
        container,
        operation,
        started_at=container.started_at if container else None,
        finished_at=container.finished_at if container else None,
        exit_code=container.exit_code if container else None,
        restarts=container.restarts if container else None,
        oom_killed=container.oom_killed if container and ran else None,
    )


def without_env_values(record: AppView) -> AppView:
    """Hide the values of the environment from those who may only read."""
    return msgspec.structs.replace(record, env=dict.fromkeys(record.env))


def _view(
    app: App, container: Container | None, operation: OperationStatus | None, **inspected: Any
) -> AppView:
    return AppView(
        **spec_values(app),
        labels=app.labels,
        state=_state(app, container, operation),
        desired=app.desired,
        volumes=app.volumes,
        container_id=container.id if container else None,
        image_id=container.image_id if container else None,
        created_at=app.created_at,
        message=_unpublished_ports(app, container) or app.message or _note(container),
        password=_password(app),
        progress=_progress(operation) if operation else None,
        **inspected,
    )


def _state(app: App, container: Container | None, operation: OperationStatus | None) -> str:
    """Return the agent's own state while an operation runs, else the engine's."""
    if operation is not None and operation.header.operation in TRANSITIONAL_STATES:
        state = TRANSITIONAL_STATES[operation.header.operation]
        return "pulling" if (state, operation.step) == ("creating", "pulling") else state
    if container is not None:
        return container.state
    return "failed" if app.failed else "missing"


def _note(container: Container | None) -> str | None:
    return (container.labels.get(NOTE_LABEL) or None) if container else None


def _unpublished_ports(app: App, container: Container | None) -> str | None:
    """Return a message if a running app is not reachable, as after some restarts of the engine."""
    if container is None or container.state != "running":
        return None
    missing = sorted({app.ssh_port, app.http_port} - container.ports)
    if not missing:
        return None
    ports = " and ".join(map(str, missing))
    return f"the container engine does not publish port {ports}; stop the app and start it again"


def _password(app: App) -> Literal["set", "pending"] | None:
    if app.password is None:
        return None
    return "pending" if app.password_pending else "set"


def _progress(operation: OperationStatus) -> Progress:
    return Progress(
        operation=operation.header.operation,
        step=operation.step or None,
        percent=operation.pull.percent if operation.pull else None,
        by=operation.header.by,
        since=rfc3339(operation.header.since),
    )
