"""The data of an app: reading it as a tar, and replacing it by one, whole or not at all.

A restore fills new volumes from the tar, and makes them the app's. The mounts of a container cannot
change, so the container is replaced. If the operation is interrupted before that, all that it made
is removed; later, the old container and volumes are.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress

import msgspec

from agent.apps.archives.access import Helper, check_declared
from agent.apps.containers.containers import UP_STATES
from agent.apps.containers.volumes import restored_volume_name
from agent.apps.errors import AppNotRunning, AppNotStopped
from agent.apps.host import Host
from agent.apps.requests import Request, Restore
from agent.apps.runner.job import Job
from agent.engine.errors import EngineConflict, EngineRejected, ObjectNotFound
from agent.engine.models import MIB, Container, InspectedContainer
from agent.journal import ExportEntry, ReplaceEntry
from agent.model import App

# The bytes that are written between two checks of the free space.
LOOK_BYTES = 64 * MIB


async def plan_restore(host: Host, job: Job, _request: Restore) -> ReplaceEntry:
    """Plan to replace the data of an app's paths by that of a tar; paths that it lacks stay.

    Raises:
        AppNotStopped, DataMissing, DataInUse, ImageUnavailable, UnfitImage: it cannot be replaced.

    """
    app = host.context.repository.get(job.app)
    container = await _stopped(host, app)
    volumes = await host.data.volumes(app)
    await _check_unused(host, app, volumes.values())
    await host.admission.check_disk()
    check_declared(app, await host.data.image(app, container), volumes)
    new = _new_volumes(app, job.header.id)
    return ReplaceEntry(header=job.header, before=app, target=app, new_volumes=tuple(new.values()))


async def _stopped(host: Host, app: App) -> Container | None:
    container = await host.containers.current(app)
    if app.desired == "stopped" and (container is None or container.state not in UP_STATES):
        return container
    raise AppNotStopped(f"app `{app.name}` is not stopped; stop it before its data is replaced")


async def _check_unused(host: Host, app: App, volumes: Collection[str]) -> None:
    """Check that others do not use the volumes: they could not be removed afterwards."""
    await host.data.check_unused(app.name, volumes, own={app.container_id})


async def make_restored(
    host: Host, entry: ReplaceEntry, tar: AsyncIterator[bytes]
) -> tuple[ReplaceEntry, str]:
    """Fill new volumes from a tar, and make a container that has them.

    Return the entry with the volumes of the app, and the container's id.

    Raises:
        InvalidData, DiskFull, AppNotStopped, DataInUse: the tar cannot be taken.

    """
    before, new = entry.before, _new_volumes(entry.before, entry.id)
    image = await host.data.image(before, await _stopped(host, before))
    helper = await host.data.open_to_fill(entry, image, new)
    filled = await host.data.fill(helper, while_there_is_room(tar, host.images.unneeded.make_room))
    await host.data.close(helper)
    # Somebody may have started the container by hand, or mounted the volumes elsewhere.
    await _stopped(host, before)
    await _check_unused(host, before, [before.volumes[path] for path in filled])
    with suppress(EngineRejected):  # what an interrupted reading left keeps the former volumes
        await host.data.sweep()
    entry = msgspec.structs.replace(entry, target=restored_app(entry, filled))
    await host.context.repository.advance(entry)
    target, container_id = await host.containers.create(entry, image)
    return msgspec.structs.replace(entry, target=target), container_id


def restored_app(entry: ReplaceEntry, filled: Collection[str]) -> App:
    """Return the app with the new volumes of the paths that are filled."""
    new = _new_volumes(entry.before, entry.id)
    chosen = entry.before.volumes | {path: new[path] for path in filled}
    return msgspec.structs.replace(entry.before, volumes=chosen)


def _new_volumes(app: App, operation: str) -> dict[str, str]:
    """Return the names of the volumes that an operation fills, by path."""
    return {
        path: restored_volume_name(app.name, path, operation=operation)
        for path in sorted(app.volumes)
    }


async def while_there_is_room(
    tar: AsyncIterator[bytes], check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes]:
    """Yield a tar as it comes; what ``check`` raises, which is called now and then."""
    taken = 0
    async for chunk in tar:
        taken += len(chunk)
        if taken >= LOOK_BYTES:
            await check()
            taken = 0
        yield chunk


def unused_volumes(entry: ReplaceEntry) -> tuple[str, ...]:
    """Return the volumes that an app has no longer after a restore, and after that alone."""
    if entry.header.operation != "restore":
        return ()
    known = {*entry.before.volumes.values(), *entry.new_volumes}
    return tuple(sorted(known - set(entry.target.volumes.values())))


class Reading:
    """The state that an export and the reader of the data share.

    Attributes:
        pause: The app stands still until the reader has finished.
        opened: The container to read by, once reading can begin.
        finished: The reader reads no more.

    """

    def __init__(self, *, pause: bool) -> None:
        self.pause = pause
        self.opened: asyncio.Future[Helper] = asyncio.get_running_loop().create_future()
        self.finished = asyncio.Event()

    def offer(self, helper: Helper) -> None:
        """Pass the container to the reader, unless that has left."""
        if not self.finished.is_set():
            self.opened.set_result(helper)


class Export(Request, frozen=True):
    """Read the data of an app."""

    operation = "export"

    reading: Reading


async def export_data(host: Host, job: Job, request: Export) -> None:
    """Open the data to the reader, and with ``pause`` wait for the reader's end.

    No other operation of the app runs while its data is opened, so that its volumes stay, nor while
    it is paused. After that the app can be changed, but not deleted, while it is read.

    Raises:
        DataMissing: the app has no volumes, or one is gone.
        AppNotRunning: the app cannot be paused.

    """
    app, reading = host.context.repository.get(job.app), request.reading
    container = await host.containers.current(app)
    volumes = await host.data.volumes(app)
    helper = await host.data.open_to_read(app, await host.data.image(app, container), volumes)
    try:
        if reading.pause and container is not None and container.state == "running":
            await _pause(host, job, reading, helper, container)
        else:
            reading.offer(helper)
    finally:
        if not reading.opened.done():
            await host.data.close(helper)


async def _pause(
    host: Host, job: Job, reading: Reading, helper: Helper, container: InspectedContainer
) -> None:
    entry = ExportEntry(header=job.header, target=host.context.repository.get(job.app))
    await job.commit(entry)
    try:
        await _pause_container(host, container)
        reading.offer(helper)
        await reading.finished.wait()
    finally:
        await recover_export(host, job, entry)


async def _pause_container(host: Host, container: InspectedContainer) -> None:
    try:
        await host.containers.pause(container)
    except EngineConflict as error:
        raise AppNotRunning(
            f"the app cannot be paused: {error}; read its data without `pause`, or ask again"
        ) from error


async def recover_export(host: Host, _job: Job, entry: ExportEntry) -> None:
    """Let the app go on, if it is there and paused."""
    container = await host.containers.current(entry.target)
    if container is not None and container.state == "paused":
        with suppress(ObjectNotFound, EngineConflict):  # it has just ended
            await host.containers.unpause(container)
    await host.context.repository.finish(entry, entry.target)
