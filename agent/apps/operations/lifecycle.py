"""Starting, stopping and deleting an app."""

import msgspec

from agent.apps.container_spec import APP_LABEL, volume_name
from agent.apps.containers import UP_STATES, Workbench
from agent.apps.errors import AppError, DataInUse, NoSuchUser
from agent.apps.operations.runner import RunningOperation
from agent.apps.operations.starter import ContainerStarter
from agent.apps.operations.update import UpdateOperation
from agent.engine.protocol import EngineConflict, EngineError, EngineUnavailable, InspectedContainer
from agent.model import App, Change


class Lifecycle:
    """Changes whether an app runs, and whether it is there at all."""

    def __init__(
        self, bench: Workbench, starter: ContainerStarter, update_operation: UpdateOperation
    ) -> None:
        self._bench = bench
        self._starter = starter
        self._update_operation = update_operation

    async def start(self, job: RunningOperation, name: str) -> None:
        """Let an app run; one whose container is gone gets another.

        Raises:
            StartFailed, PortInUse: it is stopped, as it was.

        """
        bench, app = self._bench, self._bench.repository.get(name)
        container = await bench.current(app)
        if container is None:
            await self._update_operation.recreate(job, app)
        elif container.state not in UP_STATES:
            target = msgspec.structs.replace(app, desired="running")
            change = await bench.repository.begin(bench.change(job, before=app, target=target))
            job.committed.set()
            await self._start(change, container)
        else:
            if container.state == "paused":
                await bench.engine.unpause(container.id)
            if app.desired != "running":
                await bench.repository.put(msgspec.structs.replace(app, desired="running"))

    async def _start(self, change: Change, container: InspectedContainer) -> None:
        bench, before, target = self._bench, change.before, change.target
        assert before is not None
        assert target is not None
        try:
            started = await self._started(target, container.id)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            await bench.stop(container)  # or the engine would go on trying
            kept = msgspec.structs.replace(before, message=str(error))
            await bench.repository.finish(change, kept)
            raise
        await bench.repository.finish(change, started)

    async def _started(self, app: App, container_id: str) -> App:
        try:
            return await self._starter.start(app, container_id, password=app.password_pending)
        except NoSuchUser as error:
            # Kept, it would keep the app from ever starting again.
            bare = msgspec.structs.replace(app, password=None, password_pending=False)
            started = await self._starter.start(bare, container_id, password=False)
            return msgspec.structs.replace(started, message=f"the password was dropped: {error}")

    async def settle_start(self, change: Change) -> None:
        """End a start that broke off by doing it; one that had no container yet is undone."""
        assert change.before is not None
        assert change.target is not None
        container = await self._bench.current(change.target)
        if container is None:
            told = msgspec.structs.replace(change.before, message="the start broke off")
            await self._bench.repository.finish(change, told)
        else:
            await self._start(change, container)

    async def stop(self, job: RunningOperation, name: str) -> None:
        """Let an app end, in the time that it has for that."""
        bench, app = self._bench, self._bench.repository.get(name)
        target = msgspec.structs.replace(app, desired="stopped")
        container = await bench.current(app)
        if container is not None and container.state in UP_STATES:
            change = await bench.repository.begin(bench.change(job, before=app, target=target))
            job.committed.set()
            await self.settle_stop(change)
        elif app.desired != "stopped":
            await bench.repository.put(target)

    async def settle_stop(self, change: Change) -> None:
        """Stop what is to be stopped."""
        assert change.target is not None
        container = await self._bench.current(change.target)
        if container is not None:
            await self._bench.stop(container)
        await self._bench.repository.finish(change, change.target)

    async def delete(self, job: RunningOperation, name: str, *, keep_data: bool) -> None:
        """Remove an app's container, and its volume unless that is to be kept.

        Raises:
            DataInUse: another container uses the volume; all is as it was.

        """
        bench, app = self._bench, self._bench.repository.get(name)
        change = bench.change(job, before=app, target=None, keep_data=keep_data)
        await bench.engine.info()  # it is not begun where the engine is away
        if not keep_data:
            await self._check_data(app)
        await bench.repository.begin(change)
        job.committed.set()
        await self.settle_delete(change)

    async def _check_data(self, app: App) -> None:
        volume = volume_name(app.name)
        for user in await self._bench.engine.volume_users(volume):
            if user.id != app.container_id and not self._bench.is_orphan(user):
                raise DataInUse(
                    f"the data of app `{app.name}` is used by container `{user.name}`; remove that"
                    " first, or delete the app with ?keep_data=true"
                )

    async def settle_delete(self, change: Change) -> None:
        """Remove what is to be removed."""
        assert change.before is not None
        await self._remove_containers(change.before)
        try:
            if not change.keep_data:
                await self._bench.remove_volume(change.app)
        except EngineConflict as error:
            # Somebody took it in this moment. The app is gone, and data in use is not taken away.
            await self._bench.repository.finish(change, None)
            raise DataInUse(f"app `{change.app}` is deleted, but not its data: {error}") from error
        await self._bench.repository.finish(change, None)

    async def _remove_containers(self, app: App) -> None:
        bench = self._bench
        for container in await bench.engine.containers(label=f"{APP_LABEL}={app.name}"):
            if container.id == app.container_id or bench.is_orphan(container):
                if container.state in UP_STATES:
                    await bench.stop(container)
                await bench.remove(container.id)
