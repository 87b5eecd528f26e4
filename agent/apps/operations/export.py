"""Reading the data of an app, which may be paused meanwhile."""

import asyncio
from contextlib import suppress

from agent.apps.archives.access import Helper
from agent.apps.errors import AppNotRunning
from agent.apps.host import Host
from agent.apps.requests import Request
from agent.apps.runner.job import Job
from agent.engine.errors import EngineConflict, ObjectNotFound
from agent.engine.models import InspectedContainer
from agent.journal import ExportEntry


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
