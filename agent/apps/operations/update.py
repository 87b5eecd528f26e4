"""Updating and rebuilding an app."""

from contextlib import suppress

import msgspec

from agent.apps.containers import UP_STATES, Workbench
from agent.apps.errors import MemoryInUse
from agent.apps.operations.replacement import Replacement
from agent.apps.operations.runner import RunningOperation
from agent.apps.validation import AppChanges, check_changes, check_fits_host
from agent.engine.protocol import EngineError, EngineUnavailable, InspectedContainer, ObjectNotFound
from agent.model import App, Change

MIB = 1 << 20
LIVE_FIELDS = frozenset({"cpu", "memory"})


class UpdateOperation:
    """Changes what was asked for: in the running container where the engine can."""

    def __init__(self, bench: Workbench, replacement: Replacement) -> None:
        self._bench = bench
        self._replacement = replacement

    async def update(self, job: RunningOperation, name: str, changes: AppChanges) -> None:
        """Change an app's fields.

        Raises:
            InvalidApp, PortInUse, MemoryInUse, ImageUnavailable, DiskFull, StartFailed: all is as
                it was.

        """
        bench, app = self._bench, self._bench.repository.get(name)
        check_changes(changes)
        wanted = {
            field: value
            for field, value in msgspec.structs.asdict(changes).items()
            if value is not msgspec.UNSET and value != getattr(app, field)
        }
        if not wanted:
            return
        target = msgspec.structs.replace(app, **wanted)
        host = await bench.engine.info()
        check_fits_host(target, host)
        container = await bench.current(app)
        if container is None:
            await self._check_ports(app, target, None)
            await bench.repository.put(target)  # it counts from the next start on
        elif wanted.keys() <= LIVE_FIELDS:
            await self._limit(job, app, target, container)
        else:
            bench.disk_guard.check(host.data_root)
            await self._replace(job, app, target, container, must_pull=False)

    async def _limit(
        self, job: RunningOperation, app: App, target: App, container: InspectedContainer
    ) -> None:
        bench = self._bench
        if target.memory < app.memory and container.state in UP_STATES:
            await self._check_memory(target, container.id)
        change = await bench.repository.begin(bench.change(job, before=app, target=target))
        job.committed.set()
        await self.settle_limits(change)

    async def _check_memory(self, target: App, container_id: str) -> None:
        sample = await self._bench.engine.sample(container_id, priority=True)
        used = sample.memory_bytes if sample is not None else None
        if used is not None and used > target.memory * MIB:
            raise MemoryInUse(
                f"app `{target.name}` uses {used // MIB} MiB now and would be killed"
                f" with {target.memory} MiB; stop it first, or leave it more"
            )

    async def settle_limits(self, change: Change) -> None:
        """Give the container the limits of the target, or those from before if it refuses."""
        bench, before, target = self._bench, change.before, change.target
        assert before is not None
        assert target is not None
        assert before.container_id is not None
        try:
            with suppress(ObjectNotFound):
                await bench.engine.limit(before.container_id, cpu=target.cpu, memory=target.memory)
        except EngineUnavailable:
            raise
        except EngineError as error:
            await self._put_back(before, before.container_id)
            await bench.repository.finish(change, before)
            raise MemoryInUse(f"the limits cannot be changed at present: {error}") from error
        await bench.repository.finish(change, msgspec.structs.replace(target, message=None))

    async def _put_back(self, before: App, container_id: str) -> None:
        try:
            await self._bench.engine.limit(container_id, cpu=before.cpu, memory=before.memory)
        except EngineUnavailable:
            raise
        except EngineError as error:  # one that takes neither has kept what it had
            self._bench.log.debug("limits not put back", app=before.name, reason=str(error))

    async def _replace(
        self,
        job: RunningOperation,
        app: App,
        target: App,
        container: InspectedContainer | None,
        *,
        must_pull: bool,
    ) -> None:
        bench = self._bench
        await self._check_ports(app, target, container.id if container is not None else None)
        change = await bench.repository.begin(
            bench.change(
                job,
                before=app,
                target=target,
                was_running=container is not None and container.state in UP_STATES,
            )
        )
        job.committed.set()
        try:
            image = await bench.fetch(job, target.image, must_pull=must_pull)
        except EngineUnavailable:
            raise
        except EngineError as error:
            await self._replacement.undo(change, error)
            raise
        await self._replacement.carry_out(change, image)

    async def _check_ports(self, app: App, target: App, own_container_id: str | None) -> None:
        published = await self._bench.ports.published()
        for port in sorted({target.ssh_port, target.http_port} - {app.ssh_port, app.http_port}):
            self._bench.ports.check(app.name, port, published, own_container_id)

    async def rebuild(self, job: RunningOperation, name: str) -> None:
        """Pull the app's image and replace its container.

        Raises:
            ImageUnavailable, DiskFull, StartFailed, PortInUse: all is as it was.

        """
        app = self._bench.repository.get(name)
        self._bench.disk_guard.check((await self._bench.engine.info()).data_root)
        container = await self._bench.current(app)
        await self._replace(job, app, app, container, must_pull=True)

    async def recreate(self, job: RunningOperation, app: App) -> None:
        """Give an app whose container is gone another one, that runs."""
        self._bench.disk_guard.check((await self._bench.engine.info()).data_root)
        target = msgspec.structs.replace(app, desired="running")
        await self._replace(job, app, target, None, must_pull=False)

    async def recover(self, change: Change) -> None:
        """End an update or rebuild that broke off."""
        live = change.before is not None and change.target is not None and _live_only(change)
        if live:
            await self.settle_limits(change)
        else:
            await self._replacement.recover(change)


def _live_only(change: Change) -> bool:
    before = msgspec.structs.asdict(change.before) if change.before else {}
    target = msgspec.structs.asdict(change.target) if change.target else {}
    differing = {field for field in target if target[field] != before.get(field)}
    return bool(differing) and differing <= LIVE_FIELDS
