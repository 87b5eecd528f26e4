"""What a change would do: it is planned as by its operation, and its plan is described."""

import msgspec

from agent.apps.containers.containers import NOT_MADE, UP_STATES, started
from agent.apps.containers.network import NETWORK
from agent.apps.containers.readiness import Requirement
from agent.apps.containers.spec import stop_seconds
from agent.apps.errors import AppBusy, AppNotFound, NoSuchUser
from agent.apps.host import Host
from agent.apps.images.images import UNKNOWN_IMAGE
from agent.apps.operations.data import restored_app, while_there_is_room
from agent.apps.operations.kinds import OPERATIONS
from agent.apps.operations.replace import not_started_yet, requirement, starts
from agent.apps.records import AppView, PlanView, record, with_inspection
from agent.apps.repository.events import changed_names
from agent.apps.requests import KINDS, Request, Restore, Stop
from agent.apps.runner.job import Job
from agent.apps.runner.runner import OperationRunner, Plan, Requester, cancelled
from agent.engine.models import Health, Image, InspectedContainer
from agent.journal import (
    CreateEntry,
    DeleteEntry,
    LimitsEntry,
    PasswordEntry,
    ReplaceEntry,
    StartEntry,
    StopEntry,
)
from agent.model import App

# The time that the engine needs to start a container.
START_SECONDS = 1


# An app and its container as they would be.
Preview = tuple[App, InspectedContainer | None]


async def dry_run(
    host: Host, runner: OperationRunner, request: Request, requester: Requester
) -> PlanView:
    """Return what a change of an app would do, and change nothing.

    Raises:
        AppBusy: another operation does not end in time, or was interrupted.
        AppError, EngineError, StoreError: the change would fail so.

    """
    job, repository = runner.new_job(request, requester), host.context.repository
    ends_pulls = KINDS[request.operation].cancels
    ended = await runner.wait_until_idle(request.app, requester, ends_pulls=ends_pulls)
    if ended is None and (entry := repository.entry(request.app)) is not None:
        raise AppBusy(
            f"the {entry.header.operation} of app `{request.app}` was interrupted, and is"
            " recovered first; ask again"
        )
    if isinstance(ended, CreateEntry) and isinstance(request, Stop):
        raise AppNotFound(request.app, reason="its creation was cancelled")
    before = repository.find(request.app)
    plan = await OPERATIONS.plan[type(request)](host, job, request)
    container = await host.containers.current(before) if before is not None else None
    if isinstance(plan, DeleteEntry):
        return PlanView(
            app=None,
            replaces_container=False,
            seconds_without_service=None if _is_up(container) else 0,
            changed=None,
            message=None,
        )
    pulled = list[str]()
    if isinstance(plan, CreateEntry | ReplaceEntry):
        app, after = await _made(host, job, plan, container, pulled)
    elif isinstance(plan, StartEntry) and container is not None:
        app, after = await _started(host, plan, container)
    else:
        app, after = await _changed(host, before, plan, container)
    if plan is not None:
        app = repository.revised(app, job.header).app
    if ended is not None:
        reason = str(cancelled(ended.header, request.operation, by=requester.name))
        app = msgspec.structs.replace(app, message=reason)
    is_stopped = request.operation == "restart" or _is_new(after)
    seconds = stop_seconds(app, host.context.defaults) + START_SECONDS if is_stopped else 0
    view = with_inspection(record(host, app, after, None, begins_anew=True), after)
    return PlanView(
        app=_as_known(view, pulled) if _is_new(after) else view,
        replaces_container=_is_new(after) and container is not None,
        seconds_without_service=_seconds(container, after, seconds),
        changed=None if before is None else changed_names(before, app),
        message="; ".join(_notes(container, after, pulled)) or None,
    )


async def _changed(
    host: Host, before: App | None, plan: Plan, container: InspectedContainer | None
) -> Preview:
    """Return an app in its present container; errors as of what carries out the plan."""
    match plan:
        case LimitsEntry(target=app):
            container = container and msgspec.structs.replace(
                container, cpu=app.cpu, memory=app.memory
            )
        case StopEntry(target=app):
            container = container and msgspec.structs.replace(
                container,
                state="exited" if _is_up(container) else container.state,
                health=None,
                autostart=False,
            )
        case PasswordEntry(target=app):
            if container is not None and container.state == "running":
                await host.passwords.check_settable(container)
        case App():
            app = plan
        case _:
            assert before is not None
            app = before
    return app, container and host.context.health.findings.shown(app, container)


async def _made(
    host: Host,
    job: Job,
    entry: CreateEntry | ReplaceEntry,
    old: InspectedContainer | None,
    pulled: list[str],
) -> Preview:
    """Return the app in a new container, and add to ``pulled`` the image that would be pulled.

    The server of that is asked whether it has it.
    """
    engine = host.context.engine

    async def ask(reference: str) -> Image:
        await engine.find_manifest(reference)
        pulled.append(reference)
        return await engine.image(reference) or UNKNOWN_IMAGE

    if isinstance(job.request, Restore) and isinstance(entry, ReplaceEntry):
        tar = while_there_is_room(job.request.tar, host.admission.check_disk)
        filled = await host.data.check(dict(sorted(entry.before.volumes.items())), tar)
        entry = msgspec.structs.replace(entry, target=restored_app(entry, filled))
        image = await host.data.image(entry.before, old)
    else:
        must_pull = entry.header.operation == "rebuild"
        image = await host.images.find(entry.target, must_pull=must_pull, pull=ask)
    app, made = await host.containers.preview(entry, image)
    if isinstance(entry, ReplaceEntry) and not starts(entry):
        return not_started_yet(app, made.id), made
    needs = Requirement.START
    if isinstance(entry, ReplaceEntry):
        await host.containers.ports.check_free(app)
        needs = requirement(entry, old)
    is_checked = app.health is not None and needs is not Requirement.START
    made = _running(made, app, health="healthy" if is_checked else None)
    return started(app, made.id), made


async def _started(host: Host, entry: StartEntry, container: InspectedContainer) -> Preview:
    """Return the app in its container, once that was started or started again."""
    app = entry.target
    if _is_up(container) and entry.header.operation == "start":
        await host.containers.check_network(container)
        return app, _running(container, app, container.health)
    await host.containers.check_start(app, container)
    after = started(app, container.id)
    if app.password_pending:
        try:
            await host.passwords.check_settable(container)
        except NoSuchUser as error:
            after = await host.passwords.drop(app, container, error)
    return after, _running(container, app)


def _is_up(container: InspectedContainer | None) -> bool:
    return container is not None and container.state in UP_STATES


def _running(
    container: InspectedContainer, app: App, health: Health | None = None
) -> InspectedContainer:
    return msgspec.structs.replace(
        container,
        state="running",
        restarts=0,
        error="",
        ports=dict.fromkeys((app.ssh_port, app.http_port), ""),
        health=health,
        autostart=True,
        networks=frozenset({container.own_network}),
    )


def _is_new(container: InspectedContainer | None) -> bool:
    return container is not None and container.id == NOT_MADE


def _as_known(view: AppView, pulled: list[str]) -> AppView:
    """Leave out what a container and an image get only when they are made."""
    if not view.image_id or view.image in pulled:
        # The image says which paths of the app are volumes.
        view = msgspec.structs.replace(view, image_id=None, volumes=None)
    return msgspec.structs.replace(view, container_id=None)


def _seconds(
    before: InspectedContainer | None, after: InspectedContainer | None, seconds: int
) -> int | None:
    """Return the most seconds without service, where a stop and a start take so many."""
    if not _is_up(before):
        return 0  # there is no service that could be interrupted
    return seconds if _is_up(after) else None


def _notes(
    before: InspectedContainer | None, after: InspectedContainer | None, pulled: list[str]
) -> list[str]:
    notes = [f"the image `{reference}` is pulled" for reference in sorted(pulled)]
    if after is not None and before is not None:
        # Without isolation, the network's name depends on the engine's version.
        was, is_isolated = before.network == NETWORK, after.network == NETWORK
        if was != is_isolated:
            where = "into" if is_isolated else "out of"
            notes.append(f"the app moves {where} the network `{NETWORK}`, which isolates apps")
    return notes
