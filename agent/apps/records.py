"""The records of apps and of their events, as the API, heartbeats and dry runs show them."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, TypeVar

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.context import AgentContext
from agent.apps.host import Host
from agent.apps.labels import NOTE_LABEL
from agent.apps.requests import KINDS
from agent.apps.runner.job import OperationStatus
from agent.engine.models import (
    Container,
    Health,
    InspectedContainer,
    Process,
)
from agent.journal import Actor
from agent.model import App, AppSpec, rfc3339, spec_values
from agent.reporting.heartbeat import HostedApp
from agent.state.history import Event

# With which a message begins that reports no fault: the page shows it as a note.
NOTE = "note: "

AppSpecT = TypeVar("AppSpecT", bound=AppSpec)
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
RESTARTS = "it ended by itself, and the engine starts it again; its logs may tell why"
HEALTHY: Mapping[Health, bool] = {"healthy": True, "unhealthy": False}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that has not ended; ``percent`` is of the pull, None where no size is known."""

    operation: str
    step: str | None
    percent: int | None
    by: str
    since: str


class AppView(AppSpec, frozen=True, kw_only=True):
    """The record of an app.

    A list leaves out what only an inspect shows: ``started_at`` and ``oom_killed``. Times are RFC
    3339 in UTC. In the plan of an image that would be pulled, ``volumes`` is None.
    """

    labels: tuple[str, ...]
    state: str
    desired: str
    healthy: bool | None
    volumes: dict[str, str]
    container_id: str | None
    image_id: str | None
    created_at: str
    started_at: str | msgspec.UnsetType | None = msgspec.UNSET
    finished_at: str | None
    exit_code: int | None
    restarts: int
    crashing: bool
    oom_killed: bool | msgspec.UnsetType | None = msgspec.UNSET
    message: str | None
    password: Literal["set", "pending"] | None
    progress: Progress | None
    revision: int | None


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do.

    Attributes:
        app: The record as it would be, None if the app would be gone. What is known only afterwards
            is None in it: the new container, and the id and the volumes of an image that would be
            pulled.
        replaces_container: The app's container would be replaced by another.
        seconds_without_service: The most seconds in which the app would not run, None if it would
            be down afterwards.
        changed: The names of the fields that would change, ``image_id`` and ``labels`` among them;
            None if the app would be made, or gone.
        message: Further notes for the operator.

    """

    app: AppView | None
    replaces_container: bool
    seconds_without_service: int | None
    changed: tuple[str, ...] | None
    message: str | None


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an app; ``time`` is RFC 3339 in UTC, with milliseconds.

    It names the fields that an operation changed, and holds no values, such as those of ``env``.
    """

    id: str
    time: str
    app: str
    by: str
    actor: Actor
    action: str
    outcome: str | None
    message: str | None
    exit_code: int | None
    changed: tuple[str, ...]
    revision: int | None


def event_view(event: Event) -> EventView:
    """Return an event as the API shows it."""
    return EventView(
        id=event.id,
        time=event.rfc3339,
        app=event.app,
        by=event.by,
        actor=event.actor,
        action=event.action,
        outcome=event.outcome,
        message=event.message,
        exit_code=event.exit_code,
        changed=event.changed,
        revision=event.revision,
    )


def with_inspection(record: AppView, container: InspectedContainer | None) -> AppView:
    """Add to a record what only an inspection shows."""
    ran = container is not None and container.started_at is not None
    return msgspec.structs.replace(
        record,
        started_at=container.started_at if container else None,
        oom_killed=container.oom_killed if container and ran else None,
    )


def without_secrets(record: AppSpecT) -> AppSpecT:
    """Hide from read-only keys what may hold secrets: values of `env`, and commands."""
    health = record.health and msgspec.structs.replace(record.health, command=None)
    return msgspec.structs.replace(
        record, env=dict.fromkeys(record.env), command=None, health=health
    )


def without_arguments(process: Process) -> Process:
    """Hide the arguments of a process, which may hold secrets."""
    return replace(process, command="".join(process.command.split(maxsplit=1)[:1]))


def record(
    host: Host,
    app: App,
    container: Container | None,
    operation: OperationStatus | None,
    *,
    begins_anew: bool = False,
) -> AppView:
    """Return the record of an app as a list shows it, with what is known of its container.

    ``begins_anew``: earlier ends say nothing about the app, which is about to be changed.
    """
    health = host.context.health
    crashes = None if begins_anew else health.crashes.message(app.name)
    move = None if container is None else host.containers.network.message(container)
    notes = "; ".join(filter(None, (_note(container), move)))
    note = _name_taken(app, container, operation) or (f"{NOTE}{notes}" if notes else None)
    message = _not_stored(app, container, operation) or _message(app, container, crashes, note)
    if (reason := health.findings.why_unhealthy(app, container)) is not None:
        unhealthy = f"unhealthy, and restarted again and again until it is healthy: {reason}"
        message = unhealthy if message is None else f"{unhealthy}; {message}"
    run = health.runs.last(app.name, container)
    return AppView(
        **spec_values(app),
        labels=app.labels,
        state=_state(app, container, operation),
        desired=app.desired,
        healthy=_is_healthy(container),
        volumes=app.volumes,
        container_id=container.id if container else None,
        image_id=container.image_id if container else None,
        created_at=app.created_at,
        finished_at=run.finished_at,
        exit_code=run.exit_code,
        restarts=run.restarts,
        crashing=crashes is not None,
        message=message,
        password=_password(app),
        progress=_progress(operation) if operation else None,
        revision=app.revision,
    )


def hosted(
    context: AgentContext, app: App, container: Container | None, serving: Collection[str]
) -> HostedApp:
    """Return an app as a heartbeat shows it; ``serving`` are the names of the apps that serve."""
    # One that was restarted since it was unhealthy is so until a check has passed.
    is_loop = context.health.crashes.message(app.name) is not None
    is_unhealthy = is_loop or context.health.findings.why_unhealthy(app, container) is not None
    running = container is not None and container.state == "running"
    return HostedApp(
        name=app.name,
        http_port=app.http_port,
        labels=app.labels,
        running=running,
        stopped=app.desired == "stopped" and not running,
        healthy=False if is_unhealthy else _is_healthy(container),
        crashing=is_loop,
        failed=app.failed,
        serving=app.name in serving,
    )


def _is_healthy(container: Container | None) -> bool | None:
    """Return what its check has found; None if there is no check, or it has found nothing yet."""
    return HEALTHY.get(container.health) if container and container.health else None


def _state(app: App, container: Container | None, operation: OperationStatus | None) -> str:
    """Return the agent's own state while an operation runs, else the engine's."""
    if operation is not None and (state := KINDS[operation.header.operation].state) is not None:
        return "pulling" if (state, operation.step) == ("creating", "pulling") else state
    if container is not None:
        return container.state
    return "failed" if app.failed else "missing"


def _message(
    app: App, container: Container | None, crashes: str | None, note: str | None
) -> str | None:
    """Return what is wrong now, else why the last operation failed, else the note."""
    return (
        _lost_network(app, container)
        or _unpublished_ports(app, container)
        or _why_down(app, container)
        or crashes
        or _restarts(container)
        or app.message
        or _unhealthy(app, container)
        or note
    )


def _not_stored(
    app: App, container: Container | None, operation: OperationStatus | None
) -> str | None:
    """Return a message if the engine may start a stopped app; only an inspect shows that."""
    if not isinstance(container, InspectedContainer) or app.desired != "stopped":
        return None
    is_starting = operation is not None and operation.header.operation != "stop"
    if is_starting or not container.autostart:
        return None
    return (
        "the container engine has not stored yet that the app is stopped, as on a full disk; the"
        " agent tries again, and stops the app if the engine starts it until then"
    )


def _name_taken(
    app: App, container: Container | None, operation: OperationStatus | None
) -> str | None:
    """Return a message if the container has not the name of its app, which another one has."""
    if container is None or operation is not None:
        return None
    if not container.name.startswith(f"{app.name}.NEXT-"):
        return None
    return (
        f"its container is called `{container.name}`, since another one has the name `{app.name}`;"
        " rename or remove that one, and the agent renames this one within a minute"
    )


def _unhealthy(app: App, container: Container | None) -> str | None:
    """Return why the check of an image fails; only an inspect has its output."""
    if app.health is not None or container is None or container.health != "unhealthy":
        return None
    last = container.last_check if isinstance(container, InspectedContainer) else None
    detail = f": {last.failure}" if last is not None and last.failure else ""
    return f"unhealthy: the HEALTHCHECK of its image fails{detail}"


def _restarts(container: Container | None) -> str | None:
    return RESTARTS if container is not None and container.state == "restarting" else None


def _why_down(app: App, container: Container | None) -> str | None:
    down, is_up = app.down, container is not None and container.state in UP_STATES
    if down is None or container is None or is_up or app.desired != "running":
        return None
    if down.cause == "stopped":
        return (
            "its container was stopped through the container engine, and not by the agent; it"
            " stays down until it is started or rebuilt, or the engine restarts"
        )
    times = "once" if down.tries == 1 else f"{down.tries} times"
    return f"{down.error}; tried {times}, and is tried again"


def _note(container: Container | None) -> str | None:
    return (container.labels.get(NOTE_LABEL) or None) if container else None


def _lost_network(app: App, container: Container | None) -> str | None:
    """Return a message if a running app is not reachable, since it was disconnected by hand."""
    if container is None or container.state not in UP_STATES or container.lost_network is None:
        return None
    return (
        f"its container was disconnected from the network `{container.lost_network}`, so that"
        f" ports {app.ssh_port} and {app.http_port} do not lead to it; start the app, and it is"
        " connected again"
    )


def _unpublished_ports(app: App, container: Container | None) -> str | None:
    """Return a message if a running app is not reachable, as after some restarts of the engine."""
    if container is None or container.state != "running":
        return None
    missing = sorted({app.ssh_port, app.http_port} - container.ports.keys())
    if not missing:
        return None
    word = "port" if len(missing) == 1 else "ports"
    ports = " and ".join(map(str, missing))
    return f"the container engine does not publish {word} {ports}; restart the app"


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
