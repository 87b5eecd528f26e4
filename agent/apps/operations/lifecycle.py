"""Starting, restarting, stopping and deleting an app."""

from collections.abc import Collection
from datetime import datetime

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.errors import AppError, DataInUse
from agent.apps.host import Host
from agent.apps.operations.drain import drain
from agent.apps.operations.rebuild import recreate
from agent.apps.runner.job import Job
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineRefused,
    EngineUnavailable,
    NetworkNotFound,
)
from agent.engine.models import Container, InspectedContainer
from agent.journal import DeleteEntry, StartEntry, StopEntry
from agent.model import App, not_started


async def start(host: Host, job: Job) -> None:
    """Start an app, or start it again; one whose container is gone gets another.

    Raises:
        StartFailed, PortInUse: it is stopped.

    """
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="running", down=None)
    container = await host.containers.current(app)
    if container is None:
        await recreate(host, job, target)
    elif container.state not in UP_STATES:
        entry = StartEntry(header=job.header, before=app, target=target)
        await job.commit(entry)
        await _start(host, entry, container)
    else:
        await host.containers.reconnect(container)
        if not container.autostart:  # somebody has started a stopped app by hand
            await host.containers.set_autostart(container, enabled=True)
        if container.state == "paused":
            await host.containers.unpause(container)
        if app != target or container.state == "paused" or container.lost_network is not None:
            await host.context.repository.put(target, outcome_of=job.header)


async def restart(host: Host, job: Job) -> None:
    """Stop an app that is up, and start its container; one that is down is only started.

    Raises:
        DiskFull, NetworkNotFound: it could not be started again, and was not stopped.
        StartFailed, PortInUse: it is down; one that should run is tried again.

    """
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="running", down=None)
    container = await host.containers.current(app)
    if container is None:
        await recreate(host, job, target)
        return
    if container.state in UP_STATES:
        await check_before_stop(host, container)
    entry = StartEntry(header=job.header, before=app, target=target)
    await job.commit(entry)
    if container.state in UP_STATES:
        entry = await drain(host, job, entry, target, container)
        await host.containers.stop(container)
    await _start(host, entry, container)


async def check_before_stop(host: Host, container: Container) -> None:
    """Refuse to stop a container that could not be started again; DiskFull, NetworkNotFound."""
    await host.admission.check_disk()
    await host.containers.reconnect(container)


async def _restart_or_leave(host: Host, job: Job, entry: StartEntry, container: Container) -> None:
    """Restart an app that was not stopped yet; leave it up if it could not start again."""
    try:
        await check_before_stop(host, container)
    except (DiskFull, NetworkNotFound) as error:
        before = msgspec.structs.replace(entry.before, message=str(error))
        await host.context.repository.finish(entry, before, error=error)
        return
    entry = await drain(host, job, entry, entry.target, container)
    await host.containers.stop(container)
    await _start(host, entry, container)


async def _start(host: Host, entry: StartEntry, container: Container) -> None:
    try:
        app = await host.containers.start_again(entry.target, container)
    except (AppError, EngineRefused) as error:
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
    """Start the container, after it was stopped for a restart; give up if it is gone."""
    container = await host.containers.current(entry.target)
    if container is not None:
        if entry.header.operation == "restart" and _ran_before(container, entry.header.since):
            await _restart_or_leave(host, job, entry, container)
        else:
            await _start(host, entry, container)
        return
    # The start of an app that has lost its container had this type of entry in older databases.
    await host.containers.undo_or_stop(entry)
    error = EngineUnavailable("the start broke off")
    before = msgspec.structs.replace(entry.before, message=str(error))
    await host.context.repository.finish(entry, before, undone=entry.id, error=error)


def _ran_before(container: InspectedContainer, moment: float) -> bool:
    """Return whether a container is up, and has been since before a moment in Unix seconds."""
    if container.state not in UP_STATES or container.started_at is None:
        return False
    return datetime.fromisoformat(container.started_at).timestamp() < moment


async def stop(host: Host, job: Job) -> None:
    """Stop an app after its ``drain_seconds``; it has ``stop_seconds`` to end.

    The engine does not start it by itself from then on, whatever state it was in.
    """
    app = host.context.repository.get(job.app)
    target = msgspec.structs.replace(app, desired="stopped", down=None)
    container = await host.containers.current(app)
    if container is not None and (container.autostart or container.state in UP_STATES):
        now = host.context.clock()
        entry = StopEntry(header=job.header, target=target, withdrawn_at=now)
        await job.commit(entry)
        await recover_stop(host, job, entry)
    elif app != target:
        await host.context.repository.put(target, outcome_of=job.header)


async def recover_stop(host: Host, job: Job, entry: StopEntry) -> None:
    """Stop the container, if it is there."""
    container = await host.containers.current(entry.target)
    if container is not None:
        entry = await drain(host, job, entry, entry.target, container)
        await host.containers.stop_for_good(container)
    await host.context.repository.finish(entry, entry.target)


async def delete(host: Host, job: Job, *, keep_data: bool) -> None:
    """Delete an app: its container and, unless they are to be kept, its volumes.

    Raises:
        DataInUse: another container uses a volume, or it is being read; the app is as it was.
        TooMuchKeptData: its volumes cannot be kept, too; the app is as it was.

    """
    app = host.context.repository.get(job.app)
    await host.containers.of_app(app.name)  # without the engine, nothing begins
    owned = host.volumes.owned(app)
    if keep_data and owned:
        await host.admission.check_kept_data(app, len(owned))
    names = () if keep_data else host.volumes.removable(app, owned)
    await _check_data(host, app, names)
    entry = DeleteEntry(
        header=job.header,
        before=msgspec.structs.replace(app, volumes=owned),
        keep_data=keep_data,
        volumes=names,
        withdrawn_at=host.context.clock(),
    )
    await job.commit(entry)
    await recover_delete(host, job, entry)


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


async def recover_delete(host: Host, job: Job, entry: DeleteEntry) -> None:
    """Remove the container, and the data unless it is kept."""
    await _remove_containers(host, job, entry)
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
