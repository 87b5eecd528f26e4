"""Starting, restarting, stopping and deleting an app."""

from collections.abc import Collection
from datetime import datetime

import msgspec

from agent.apps.admission.admission import Admission
from agent.apps.archives.access import DataAccess
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.containers.starter import ContainerStarter
from agent.apps.containers.volumes import Volumes
from agent.apps.errors import AppError, DataInUse
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.engine.errors import DiskFull, EngineConflict, EngineRefused, EngineUnavailable
from agent.engine.models import Container, InspectedContainer
from agent.journal import DeleteEntry, StartEntry, StopEntry
from agent.model import App, not_started


class StartOperation:
    """Starts an app, or starts it again; one whose container is gone gets another."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        containers: ContainerManager,
        starter: ContainerStarter,
        rebuild: RebuildOperation,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._containers = containers
        self._starter = starter
        self._rebuild = rebuild

    async def run(self, job: Job) -> None:
        """Start an app.

        Raises:
            StartFailed, PortInUse: it is stopped.

        """
        app = self._repository.get(job.app)
        target = msgspec.structs.replace(app, desired="running", down=None)
        container = await self._containers.current(app)
        if container is None:
            await self._rebuild.recreate(job, target)
        elif container.state not in UP_STATES:
            entry = StartEntry(header=job.header, before=app, target=target)
            await job.commit(entry)
            await self._carry_out(entry, container)
        else:
            await self._containers.commands.reconnect(container)
            if not container.autostart:  # somebody has started a stopped app by hand
                await self._containers.set_autostart(container, enabled=True)
            if container.state == "paused":
                await self._containers.unpause(container)
            if app != target or container.state == "paused" or container.lost_network is not None:
                await self._repository.put(target, outcome_of=job.header)

    async def restart(self, job: Job) -> None:
        """Stop an app that is up, and start its container; one that is down is only started.

        Raises:
            DiskFull: it could not be started again, and was not stopped.
            StartFailed, PortInUse: it is down; one that should run is tried again.

        """
        app = self._repository.get(job.app)
        target = msgspec.structs.replace(app, desired="running", down=None)
        container = await self._containers.current(app)
        if container is None:
            await self._rebuild.recreate(job, target)
            return
        if container.state in UP_STATES:
            await self._admission.check_disk()
        entry = StartEntry(header=job.header, before=app, target=target)
        await job.commit(entry)
        if container.state in UP_STATES:
            await self._containers.stop(container)
        await self._carry_out(entry, container)

    async def _restart_or_leave(self, entry: StartEntry, container: Container) -> None:
        """Restart an app that was not stopped yet; leave it up where there is no room."""
        try:
            await self._admission.check_disk()
        except DiskFull as error:
            before = msgspec.structs.replace(entry.before, message=str(error))
            await self._repository.finish(entry, before, error=error)
            return
        await self._containers.stop(container)
        await self._carry_out(entry, container)

    async def _carry_out(self, entry: StartEntry, container: Container) -> None:
        try:
            app = await self._starter.start_again(entry.target, container)
        except (AppError, EngineRefused) as error:
            await self._stop(entry.before, container)
            before = msgspec.structs.replace(entry.before, message=str(error))
            await self._repository.finish(entry, not_started(before, error), error=error)
            raise
        await self._repository.finish(entry, app)

    async def _stop(self, app: App, container: Container) -> None:
        """Stop a container that does not stay up, or the engine restarts it again and again."""
        if app.desired == "running":
            await self._containers.stop(container)  # it is started again, also by the engine
        else:
            await self._containers.stop_for_good(container)

    async def recover(self, _job: Job, entry: StartEntry) -> None:
        """Start the container, after it was stopped for a restart; give up if it is gone."""
        container = await self._containers.current(entry.target)
        if container is not None:
            if entry.header.operation == "restart" and _ran_before(container, entry.header.since):
                await self._restart_or_leave(entry, container)
            else:
                await self._carry_out(entry, container)
            return
        # The start of an app that has lost its container had this type of entry in older databases.
        await self._containers.undo_or_stop(entry)
        error = EngineUnavailable("the start broke off")
        before = msgspec.structs.replace(entry.before, message=str(error))
        await self._repository.finish(entry, before, undone=entry.id, error=error)


def _ran_before(container: InspectedContainer, moment: float) -> bool:
    """Return whether a container is up, and has been since before a moment in Unix seconds."""
    if container.state not in UP_STATES or container.started_at is None:
        return False
    return datetime.fromisoformat(container.started_at).timestamp() < moment


class StopOperation:
    """Stops an app, which has ``stop_seconds`` to end.

    The engine does not start it by itself from then on, whatever state it was in.
    """

    def __init__(self, *, repository: AppRepository, containers: ContainerManager) -> None:
        self._repository = repository
        self._containers = containers

    async def run(self, job: Job) -> None:
        """Stop an app."""
        app = self._repository.get(job.app)
        target = msgspec.structs.replace(app, desired="stopped", down=None)
        container = await self._containers.current(app)
        if container is not None and (container.autostart or container.state in UP_STATES):
            entry = StopEntry(header=job.header, target=target)
            await job.commit(entry)
            await self.recover(job, entry)
        elif app != target:
            await self._repository.put(target, outcome_of=job.header)

    async def recover(self, _job: Job, entry: StopEntry) -> None:
        """Stop the container, if it is there."""
        container = await self._containers.current(entry.target)
        if container is not None:
            await self._containers.stop_for_good(container)
        await self._repository.finish(entry, entry.target)


class DeleteOperation:
    """Removes an app: its container and, unless they are to be kept, its volumes."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        containers: ContainerManager,
        volumes: Volumes,
        data: DataAccess,
    ) -> None:
        self._repository = repository
        self._containers = containers
        self._volumes = volumes
        self._data = data

    async def run(self, job: Job, *, keep_data: bool) -> None:
        """Delete an app.

        Raises:
            DataInUse: another container uses a volume, or it is being read; the app is as it was.

        """
        app = self._repository.get(job.app)
        await self._containers.of_app(app.name)  # without the engine, nothing begins
        owned = self._volumes.owned(app)
        names = () if keep_data else self._volumes.removable(app, owned)
        await self._check_data(app, names)
        entry = DeleteEntry(
            header=job.header,
            before=msgspec.structs.replace(app, volumes=owned),
            keep_data=keep_data,
            volumes=names,
        )
        await job.commit(entry)
        await self.recover(job, entry)

    async def _check_data(self, app: App, volumes: Collection[str]) -> None:
        going = {app.container_id}
        for container in await self._containers.of_app(app.name):
            if self._containers.ownership.is_orphan(container):
                going.add(container.id)
        unfinished = self._repository.entry(app.name)
        if unfinished is not None:  # the deletion takes its place, and removes what it made
            going |= {container.id for container in await self._containers.made_by(unfinished)}
        await self._data.check_unused(
            app.name,
            volumes,
            own=going,
            otherwise=", or delete the app with ?keep_data=true",
        )

    async def recover(self, _job: Job, entry: DeleteEntry) -> None:
        """Remove the container, and the data unless it is kept."""
        await self._remove_containers(entry.before)
        try:
            await self._volumes.remove(entry.app, entry.volumes)
        except EngineConflict as error:
            # A container has begun to use it just now. The app is gone; data in use is kept.
            data_in_use = DataInUse(
                f"app `{entry.app}` is deleted, but not its data: {error}; remove the"
                " volume with `docker volume rm` when nobody uses it"
            )
            await self._repository.finish(entry, None, error=data_in_use)
            raise data_in_use from error
        kept = self._repository.kept_data(entry.app) | entry.before.volumes
        await self._repository.finish(entry, None, kept_data=kept if entry.keep_data else None)

    async def _remove_containers(self, app: App) -> None:
        for container in await self._containers.of_app(app.name):
            if container.id == app.container_id or self._containers.ownership.is_orphan(container):
                if container.state in UP_STATES:
                    await self._containers.stop(container)
                await self._containers.remove(container.id)
