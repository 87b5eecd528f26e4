"""What a change would do: it is planned as by its operation, and its plan is described."""

from dataclasses import dataclass, field

import msgspec

from agent.apps.containers.containers import UP_STATES, started
from agent.apps.containers.network import NETWORK
from agent.apps.containers.readiness import Requirement
from agent.apps.containers.spec import stop_seconds
from agent.apps.errors import AppBusy, AppNotFound, NoSuchUser
from agent.apps.host import Host
from agent.apps.images.images import UNKNOWN_IMAGE
from agent.apps.operations.kinds import OPERATIONS
from agent.apps.operations.replace import not_started_yet, requirement, starts
from agent.apps.operations.restore import restored_app, while_there_is_room
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


@dataclass(kw_only=True)
class _Preview:
    """An app and its container as they would be, and the images that would be pulled."""

    app: App
    container: InspectedContainer | None
    is_new: bool = False
    is_restarted: bool = False
    pulled: list[str] = field(default_factory=list)


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
    preview = await _preview(host, job, before, plan, container)
    if plan is not None:
        preview.app = repository.revised(preview.app, job.header).app
    if ended is not None:
        reason = str(cancelled(ended.header, request.operation, by=requester.name))
        preview.app = msgspec.structs.replace(preview.app, message=reason)
    return PlanView(
        app=_record(host, preview),
        replaces_container=preview.is_new and container is not None,
        seconds_without_service=_seconds(host, container, preview),
        changed=None if before is None else changed_names(before, preview.app),
        message="; ".join(_notes(container, preview)) or None,
    )


async def _preview(
    host: Host, job: Job, before: App | None, plan: Plan, container: InspectedContainer | None
) -> _Preview:
    """Return what a plan makes of an app; errors as of what carries it out."""
    match plan:
        case CreateEntry() | ReplaceEntry():
            return await _made(host, job, plan, container)
        case LimitsEntry(target=app):
            container = container and msgspec.structs.replace(
                container, cpu=app.cpu, memory=app.memory
            )
        case StartEntry():
            return await _started(host, plan, container)
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
    shown = container and host.context.health.findings.shown(app, container)
    return _Preview(app=app, container=shown)


async def _made(
    host: Host, job: Job, entry: CreateEntry | ReplaceEntry, old: InspectedContainer | None
) -> _Preview:
    """Return the app in a new container; the servers of images are asked whether they have one."""
    engine, pulled = host.context.engine, list[str]()

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
        return _Preview(
            app=not_started_yet(app, made.id), container=made, is_new=True, pulled=pulled
        )
    needs = Requirement.START
    if isinstance(entry, ReplaceEntry):
        await host.containers.check_ports(app)
        needs = requirement(entry, old)
    is_checked = app.health is not None and needs is not Requirement.START
    made = _running(made, app, health="healthy" if is_checked else None)
    return _Preview(app=started(app, made.id), container=made, is_new=True, pulled=pulled)


async def _started(host: Host, entry: StartEntry, container: InspectedContainer | None) -> _Preview:
    """Return the app in its container, once that was started or started again."""
    app = entry.target
    assert container is not None
    if _is_up(container) and entry.header.operation == "start":
        return _Preview(app=app, container=_running(container, app, container.health))
    await host.containers.check_start(app, container)
    if not app.password_pending:
        after = started(app, container.id)
    else:
        try:
            await host.passwords.check_settable(container)
            after = started(app, container.id)
        except NoSuchUser as error:
            after = await host.passwords.drop(app, container, error)
    is_restarted = _is_up(container)
    return _Preview(app=after, container=_running(container, app), is_restarted=is_restarted)


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


def _record(host: Host, preview: _Preview) -> AppView:
    """Return the record, without what a container and an image get only when they are made."""
    container = preview.container
    view = with_inspection(record(host, preview.app, container, None, begins_anew=True), container)
    if not preview.is_new:
        return view
    if not view.image_id or view.image in preview.pulled:
        # The image says which paths of the app are volumes.
        view = msgspec.structs.replace(view, image_id=None, volumes=None)
    return msgspec.structs.replace(view, container_id=None)


def _seconds(host: Host, before: InspectedContainer | None, preview: _Preview) -> int | None:
    if not _is_up(before):
        return 0  # there is no service that could be interrupted
    if not _is_up(preview.container):
        return None
    if not (preview.is_new or preview.is_restarted):
        return 0
    return stop_seconds(preview.app, host.context.defaults) + START_SECONDS


def _notes(before: InspectedContainer | None, preview: _Preview) -> list[str]:
    notes = [f"the image `{reference}` is pulled" for reference in sorted(preview.pulled)]
    if preview.container is not None and before is not None:
        # Without isolation, the network's name depends on the engine's version.
        was, is_isolated = before.network == NETWORK, preview.container.network == NETWORK
        if was != is_isolated:
            where = "into" if is_isolated else "out of"
            notes.append(f"the app moves {where} the network `{NETWORK}`, which isolates apps")
    return notes
