"""An app as it is shown: what was asked for beside what the engine says."""

from typing import Literal

import msgspec

from agent.apps.operations.runner import RunningOperation
from agent.engine.protocol import Container, InspectedContainer
from agent.model import App

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
    """How far a change is. ``percent`` is that of the pull, where its size is known."""

    operation: str
    step: str | None
    percent: int | None
    by: str
    since: str


class AppView(msgspec.Struct, frozen=True, kw_only=True):
    """An app as it is answered; a list leaves out what only an inspect tells."""

    name: str
    image: str
    ssh_port: int
    http_port: int
    cpu: int
    memory: int
    env: dict[str, str | None]
    labels: tuple[str, ...]
    state: str
    desired: str
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


def state(app: App, container: Container | None, job: RunningOperation | None) -> str:
    """Give the state of an app: the agent's own while it works on it, else the engine's word."""
    working = TRANSITIONAL_STATES.get(job.operation) if job is not None else None
    if working is not None:
        return "pulling" if job and job.step == "pulling" and working == "creating" else working
    if container is not None:
        return container.state
    return "failed" if app.failed else "missing"


def summary(
    app: App, container: Container | None, job: RunningOperation | None, since: str
) -> AppView:
    """Give the record as a list shows it; ``since`` is when the turn began."""
    return AppView(
        name=app.name,
        image=app.image,
        ssh_port=app.ssh_port,
        http_port=app.http_port,
        cpu=app.cpu,
        memory=app.memory,
        env={**app.env},
        labels=app.labels,
        state=state(app, container, job),
        desired=app.desired,
        container_id=container.id if container else None,
        image_id=container.image_id if container else None,
        created_at=app.created_at,
        message=_unpublished_ports(app, container) or app.message,
        password=_password(app),
        progress=_progress(job, since) if job else None,
    )


def full(
    app: App, container: InspectedContainer | None, job: RunningOperation | None, since: str
) -> AppView:
    """Give the whole record."""
    ran = container is not None and container.started_at is not None
    return msgspec.structs.replace(
        summary(app, container, job, since),
        started_at=container.started_at if container else None,
        finished_at=container.finished_at if container else None,
        exit_code=container.exit_code if container else None,
        restarts=container.restarts if container else None,
        oom_killed=container.oom_killed if container and ran else None,
    )


def without_env_values(record: AppView) -> AppView:
    """Hide the values of the environment from those who may only read."""
    return msgspec.structs.replace(record, env=dict.fromkeys(record.env))


def _unpublished_ports(app: App, container: Container | None) -> str | None:
    """Say that an app is not reached, which a running one may be after a restart of the engine."""
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


def _progress(job: RunningOperation, since: str) -> Progress:
    return Progress(
        operation=job.operation,
        step=job.step or None,
        percent=job.pull.percent if job.pull else None,
        by=job.by,
        since=since,
    )
