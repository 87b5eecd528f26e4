"""Reads the data of an app, which may be paused meanwhile."""

import asyncio
from contextlib import suppress

from agent.apps.archives.access import DataAccess, Helper
from agent.apps.containers.manager import ContainerManager
from agent.apps.errors import AppNotRunning
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.engine.errors import EngineConflict, ObjectNotFound
from agent.engine.models import InspectedContainer
from agent.journal import ExportEntry


class Export:
    """The state that an export operation and the reader of the data share.

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


class ExportOperation:
    """Opens the data of an app to a reader.

    No other operation of the app runs while its data is opened, so that its volumes stay, nor while
    it is paused. After that the app can be changed, but not deleted, while it is read.
    """

    def __init__(
        self, *, repository: AppRepository, containers: ContainerManager, data: DataAccess
    ) -> None:
        self._repository = repository
        self._containers = containers
        self.data = data

    async def run(self, job: Job, *, export: Export) -> None:
        """Open the data to the reader, and with ``pause`` wait for the reader's end.

        Raises:
            DataMissing: the app has no volumes, or one is gone.
            AppNotRunning: the app cannot be paused.

        """
        app = self._repository.get(job.app)
        container = await self._containers.current(app)
        volumes = await self.data.volumes(app)
        helper = await self.data.open_to_read(app, await self.data.image(app, container), volumes)
        try:
            if export.pause and container is not None and container.state == "running":
                await self._pause(job, export, helper, container)
            else:
                export.offer(helper)
        finally:
            if not export.opened.done():
                await self.data.close(helper)

    async def _pause(
        self, job: Job, export: Export, helper: Helper, container: InspectedContainer
    ) -> None:
        entry = ExportEntry(header=job.header, target=self._repository.get(job.app))
        await job.commit(entry)
        try:
            await self._pause_container(container)
            export.offer(helper)
            await export.finished.wait()
        finally:
            await self.recover(job, entry)

    async def _pause_container(self, container: InspectedContainer) -> None:
        try:
            await self._containers.pause(container)
        except EngineConflict as error:
            raise AppNotRunning(
                f"the app cannot be paused: {error}; read its data without `pause`, or ask again"
            ) from error

    async def recover(self, _job: Job, entry: ExportEntry) -> None:
        """Let the app go on, if it is there and paused."""
        container = await self._containers.current(entry.target)
        if container is not None and container.state == "paused":
            with suppress(ObjectNotFound, EngineConflict):  # it has just ended
                await self._containers.unpause(container)
        await self._repository.finish(entry, entry.target)
