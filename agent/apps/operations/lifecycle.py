"""Starting, restarting, stopping and deleting an app."""

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.errors import AppError, DataInUse
from agent.apps.host import Host
from agent.apps.operations.before_stop import check_and_drain, drain
from agent.apps.operations.replace import planned_recreation
from agent.apps.requests import Delete, Restart, Start, Stop
from agent.apps.runner.job import Job
from agent.apps.runner.runner import Plan
from agent.engine.errors import (
    EngineConflict,
    EngineRejected,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.models import Container, InspectedContainer
from agent.journal import DeleteEntry, ReplaceEntry, StartEntry, StopEntry
from agent.model import App, not_started


async def plan_start(host: Host, job: Job, _request: Start) -> Plan:
    """Plan to start an app, or to start it again; one whose container is gone gets another."""
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="running", down=None)
    container = await host.containers.current(app)
    if container is None:
        return await planned_recreation(host, job, target)
    if container.state not in UP_STATES or not _is_well(container):
        return StartEntry(header=job.header, before=app, target=target)
    return target if app != target else None


def _is_well(container: InspectedContainer) -> bool:
    """Return whether a container that is up needs nothing to be as that of a started app."""
    is_connected = container.lost_network is None
    return is_connected and container.autostart and container.state != "paused"


async def plan_restart(host: Host, job: Job, _request: Restart) -> StartEntry | ReplaceEntry:
    """Plan to stop an app that is up, and to start its container.

    Raises:
        DiskFull, NetworkNotFound: it could not be started again.

    """
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="running", down=None)
    container = await host.containers.current(app)
    if container is None:
        return await planned_recreation(host, job, target)
    if container.state in UP_STATES:
        await host.admission.check_disk()
        await host.containers.check_network(container)
    return StartEntry(header=job.header, before=app, target=target)


async def carry_out_start(host: Host, job: Job, entry: StartEntry) -> None:
    """Start or restart an app in its container.

    Raises:
        DiskFull, NetworkNotFound, StartFailed: it could not be started again, and was not stopped.
        EngineRejected: it was up, and is as it was.
        StartFailed, PortInUse: it is down; one that should run is tried again.

    """
    container = await host.containers.current(entry.target)
    if container is None:
        error = ObjectNotFound(f"the container of app `{entry.app}` is gone")
        await _give_up(host, entry, error)
        raise error
    if container.state not in UP_STATES:
        await _start(host, entry, container)
    elif entry.header.operation == "restart":
        await _restart(host, job, entry, container)
    else:
        await _complete(host, entry, container)


async def _complete(host: Host, entry: StartEntry, container: InspectedContainer) -> None:
    """Give a container that is up what one has that the agent started; leave it up in any case."""
    try:
        await host.containers.reconnect(container)
        if not container.autostart:  # somebody has started a stopped app by hand
            await host.containers.set_autostart(container, enabled=True)
        if container.state == "paused":
            await host.containers.unpause(container)
    except (AppError, EngineRejected) as error:
        await _give_up(host, entry, error)
        raise
    await host.context.repository.finish(entry, entry.target)


async def _restart(host: Host, job: Job, entry: StartEntry, container: Container) -> None:
    """Restart an app that is up; leave it up if it could not start again."""
    try:
        entry = await check_and_drain(host, job, entry, container, container.id)
    except (AppError, EngineRejected) as error:
        await _give_up(host, entry, error)
        raise
    await host.containers.stop(container)
    await _start(host, entry, container)


async def _give_up(host: Host, entry: StartEntry, error: Exception) -> None:
    before = msgspec.structs.replace(entry.before, message=str(error))
    await host.context.repository.finish(entry, before, error=error)


async def _start(host: Host, entry: StartEntry, container: Container) -> None:
    try:
        app = await host.containers.start_again(entry.target, container)
    except (AppError, EngineRejected) as error:
        await _stop_failed(host, entry.before, container)
        before = msgspec.structs.replace(entry.before, message=str(error))
        await host.context.repository.finish(entry, not_started(before, error), error=error)
        raise
    await host.context.repository.finish(entry, app)


async def _stop_failed(host: Host, app: App, container: Container) -> None:
    """Stop a container that does not stay up, or the engine restarts it again and again."""
    if app.desired == "running":
        await host.containers.stop(container)  # it is started again, also by the engine
    else:
        await host.containers.stop_for_good(container)


async def recover_start(host: Host, job: Job, entry: StartEntry) -> None:
    """Start the container, unless it was up before and was not stopped; give up if it is gone."""
    container = await host.containers.current(entry.target)
    if container is None:
        await _give_up(host, entry, EngineUnavailable("the start was interrupted"))
    elif container.state == "paused" or _ran_before(container, entry.header.since):
        await carry_out_start(host, job, entry)
    else:
        await _start(host, entry, container)


def _ran_before(container: InspectedContainer, moment: float) -> bool:
    """Return whether a container is up, and has been since before a moment in Unix seconds."""
    if container.state not in UP_STATES or container.started_at is None:
        return False
    return datetime.fromisoformat(container.started_at).timestamp() < moment


async def plan_stop(host: Host, job: Job, _request: Stop) -> Plan:
    """Plan to stop an app after its ``drain_seconds``; it has ``stop_seconds`` to end.

    The engine does not start it by itself from then on, whatever state it was in.
    """
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="stopped", down=None)
    container = await host.containers.current(app)
    if container is not None and (container.autostart or container.state in UP_STATES):
        return StopEntry(header=job.header, target=target, withdrawn_at=host.context.clock())
    return target if app != target else None


async def carry_out_stop(host: Host, job: Job, entry: StopEntry) -> None:
    """Stop the container, if it is there."""
    container = await host.containers.current(entry.target)
    if container is not None:
        entry = await drain(host, job, entry, entry.target, container)
        await host.containers.stop_for_good(container)
    await host.context.repository.finish(entry, entry.target)


async def plan_delete(host: Host, job: Job, request: Delete) -> DeleteEntry:
    """Plan to delete an app: its container and, unless they are to be kept, its volumes.

    Raises:
        DataInUse: another container uses a volume, or it is being read.
        TooMuchKeptData: its volumes cannot be kept, too.

    """
    app = host.context.repository.get(job.app)
    await host.containers.of_app(app.name)  # without the engine, nothing begins
    owned = host.volumes.owned(app)
    if request.keep_data and owned:
        await host.admission.check_kept_data(app, len(owned))
    names = () if request.keep_data else host.volumes.removable(app, owned)
    await _check_data(host, app, names)
    return DeleteEntry(
        header=job.header,
        before=msgspec.structs.replace(app, volumes=owned),
        keep_data=request.keep_data,
        volumes=names,
        withdrawn_at=host.context.clock(),
    )


async def _check_data(host: Host, app: App, volumes: Collection[str]) -> None:
    going = {app.container_id}
    for container in await host.containers.of_app(app.name):
        if host.context.ownership.is_orphan(container):
            going.add(container.id)
    unfinished = host.context.repository.entry(app.name)
    if unfinished is not None:  # the deletion takes its place, and removes what it made
        going |= {container.id for container in await host.containers.made_by(unfinished)}
    await host.data.check_unused(
        app.name,
        volumes,
        own=going,
        otherwise=", or delete the app with ?keep_data=true",
    )


async def carry_out_delete(host: Host, job: Job, entry: DeleteEntry) -> None:
    """Remove the container, and the data unless it is kept.

    DataInUse: a container has begun to use it; the app is gone.
    """
    await _remove_containers(host, job, entry)
    with suppress(EngineRejected):  # what an interrupted reading left keeps the data
        await host.data.sweep()
    try:
        await host.volumes.remove(entry.app, entry.volumes)
    except EngineConflict as error:
        # A container has begun to use it just now. The app is gone; data in use is kept.
        data_in_use = DataInUse(
            f"app `{entry.app}` is deleted, but not its data: {error}; remove the"
            " volume with `docker volume rm` when nobody uses it"
        )
        await host.context.repository.finish(entry, None, error=data_in_use)
        raise data_in_use from error
    kept = host.context.repository.kept_data(entry.app) | entry.before.volumes
    await host.context.repository.finish(entry, None, kept_data=kept if entry.keep_data else None)


async def _remove_containers(host: Host, job: Job, entry: DeleteEntry) -> None:
    app = entry.before
    for container in await host.containers.of_app(app.name):
        if container.id == app.container_id or host.context.ownership.is_orphan(container):
            if container.state in UP_STATES:
                if container.id == app.container_id:
                    await drain(host, job, entry, app, container)
                await host.containers.stop(container)
            await host.containers.remove(container.id)
