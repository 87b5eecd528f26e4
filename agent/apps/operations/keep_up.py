"""Keeping an app that should run up and healthy, and others down, without a request.

Only a restart and a stop have an entry in the journal. If any of the others is interrupted, the
next look at the container finds out.
"""

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.errors import AppError
from agent.apps.host import Host
from agent.apps.operations.before_stop import check_and_drain
from agent.apps.requests import (
    FoundUp,
    LeaveDown,
    LeaveStopped,
    LetStart,
    RestartUnhealthy,
    StartDown,
)
from agent.apps.runner.job import Job
from agent.engine.errors import DiskFull, EngineRejected, NetworkNotFound
from agent.engine.models import InspectedContainer
from agent.journal import StartEntry, StopEntry
from agent.model import App, Down, not_started


async def start_down(host: Host, job: Job, _request: StartDown) -> None:
    """Start the app's container, and leave it to the engine whether it stays up.

    Raises:
        EngineRejected: it does not start; the app holds the reason and the number of tries.

    """
    app = host.context.repository.get(job.app)
    container = await _down(host, app)
    if container is None:
        return
    host.context.log.warning("starting an app that is down", app=app.name, reason=container.error)
    host.context.counters.restarts.labels("down").inc()
    reason = f"it was down: {container.error}" if container.error else "it was down"
    job.header = msgspec.structs.replace(job.header, reason=reason)
    try:
        await host.containers.start_unchecked(container)
    except EngineRejected as error:
        failed = not_started(app, error)
        await host.context.repository.put(failed, outcome_of=job.header, error=error)
        raise
    started = msgspec.structs.replace(app, down=None)
    await host.context.repository.put(started, outcome_of=job.header)


async def restart_unhealthy(host: Host, job: Job, request: RestartUnhealthy) -> None:
    """Stop a running container, which is unhealthy for this reason, and start it again.

    Raises:
        DiskFull, NetworkNotFound, StartFailed: it could not be started again, and was not stopped.
        EngineRejected: it does not start; the app holds the reason and the number of tries.

    """
    app = host.context.repository.get(job.app)
    container = await host.containers.current(app)
    if container is None or container.state != "running" or app.desired != "running":
        return
    job.header = msgspec.structs.replace(job.header, reason=f"it was unhealthy: {request.reason}")
    try:
        await host.images.unneeded.make_room()
        await host.containers.check_network(container)
    except (DiskFull, NetworkNotFound) as error:
        await host.context.repository.put(app, outcome_of=job.header, error=error)
        raise
    entry = StartEntry(header=job.header, before=app, target=app)
    await job.commit(entry)
    try:
        entry = await check_and_drain(host, job, entry, container, container.id)
    except (AppError, EngineRejected) as error:
        await host.context.repository.finish(entry, app, error=error)
        raise
    host.context.log.warning("restarting an app that is unhealthy", app=app.name)
    host.context.counters.restarts.labels("unhealthy").inc()
    await host.containers.stop(container)
    try:
        await host.containers.start_unchecked(container)
    except EngineRejected as error:
        await host.context.repository.finish(entry, not_started(app, error), error=error)
        raise
    await host.context.repository.finish(entry, app)


async def set_autostart(host: Host, job: Job, request: LetStart | LeaveStopped) -> None:
    """Let the engine start the app by itself if it should run, and not if it was stopped.

    If the engine has started a stopped app meanwhile, that is stopped. One that somebody has
    started by hand is left alone: the engine would not have done so. The log has the first of
    the ``repeated`` failures.

    Raises:
        EngineRejected: it is as it was.

    """
    job.repeated = request.repeated
    app = host.context.repository.get(job.app)
    container = await host.containers.current(app)
    wanted = app.desired == "running"
    if container is None or container.autostart == wanted:
        return
    if wanted or container.state not in UP_STATES:
        await host.containers.set_autostart(container, enabled=wanted)
        return
    host.context.log.warning("stopping an app that the engine has started", app=app.name)
    reason = "the container engine had started it, though it was stopped"
    job.header = msgspec.structs.replace(job.header, reason=reason)
    now = host.context.clock()
    entry = StopEntry(header=job.header, target=app, withdrawn_at=now)
    await job.commit(entry)
    await host.containers.stop_for_good(container)
    await host.context.repository.finish(entry, app)


async def leave_down(host: Host, job: Job, request: LeaveDown) -> None:
    """Record that somebody stopped the app in this run of the engine."""
    app = host.context.repository.get(job.app)
    if await _down(host, app) is not None:
        host.context.log.warning(
            "app was stopped through the engine and is left down", app=app.name
        )
        await _put(host, app, Down(cause="stopped", engine_run=request.engine_run))


async def found_up(host: Host, job: Job, _request: FoundUp) -> None:
    """Forget why the app was down."""
    await _put(host, host.context.repository.get(job.app), None)


async def _put(host: Host, app: App, down: Down | None) -> None:
    if app.down != down:
        await host.context.repository.put(msgspec.structs.replace(app, down=down))


async def _down(host: Host, app: App) -> InspectedContainer | None:
    """Return the container of an app that should run and does not."""
    container = await host.containers.current(app)
    is_down = container is not None and container.state not in UP_STATES
    return container if is_down and app.desired == "running" else None
