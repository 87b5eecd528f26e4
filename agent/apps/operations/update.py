"""Updates an app: only its record, or its running container, where no other one is needed."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.admission import Admission
from agent.apps.admission.validation import check_changes
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.errors import MemoryInUse
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.engine.errors import EngineRefused
from agent.engine.models import MIB, InspectedContainer
from agent.journal import LimitsEntry
from agent.model import (
    FIELD_KINDS,
    App,
    AppChanges,
    FieldKind,
    given_values,
    with_image,
    with_whole_env,
)


def kinds_of_change(
    given: Mapping[str, Any], app: App, container: InspectedContainer | None
) -> set[FieldKind]:
    """Return the kinds of the fields that differ in the app or in its container."""
    kinds = {FIELD_KINDS[field] for field, value in given.items() if value != getattr(app, field)}
    live = [field for field in given if FIELD_KINDS[field] is FieldKind.LIVE]
    if container is not None and any(given[field] != getattr(container, field) for field in live):
        kinds.add(FieldKind.LIVE)  # others have changed the limits of the container
    return kinds


class UpdateOperation:
    """Changes fields of an app, as their kinds ask for."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        containers: ContainerManager,
        rebuild: RebuildOperation,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._containers = containers
        self._rebuild = rebuild
        self._log = log

    async def run(self, job: Job, changes: AppChanges) -> None:
        """Change fields of an app.

        Raises:
            InvalidApp, MemoryInUse: the app is as it was.
            AppError, EngineError: as of a rebuild, if a field needs another container.

        """
        app = self._repository.get(job.app)
        check_changes(changes)
        changes = with_whole_env(changes, app.env)
        check_changes(changes)  # with the other variables, the environment may be too large
        container = await self._containers.current(app)
        kinds = kinds_of_change(given_values(changes), app, container)
        if not kinds:
            return
        replaces = container is not None and FieldKind.REPLACING in kinds
        if replaces:
            await self._admission.check_disk()
        # No await between checking the ports and writing them, or another operation could
        # take them.
        target = await self._admission.changed_app(
            app, changes, container=container, picked_ports_only=job.picked_ports_only
        )
        if container is not None and replaces and target.image == app.image:
            target = with_image(target, container.image_id)
        if container is None:
            # The next container is made from it.
            await self._repository.put(target, outcome_of=job.header)
        else:
            await self.carry_out(job, target, container, kinds)

    async def carry_out(
        self,
        job: Job,
        target: App,
        container: InspectedContainer | None,
        kinds: Collection[FieldKind],
    ) -> None:
        """Bring an app to ``target``, as the kinds of change require; errors as of ``run``.

        One without a container gets another.
        """
        if container is None or FieldKind.REPLACING in kinds:
            await self._rebuild.replace(job, target, container, must_pull=False)
        elif FieldKind.LIVE in kinds:
            await self._limit(job, self._repository.get(job.app), target, container)
        else:
            await self._repository.put(target, outcome_of=job.header)

    async def _limit(self, job: Job, app: App, target: App, container: InspectedContainer) -> None:
        # Others may have changed the limit of the container, or removed it: it is 0 then.
        is_less = not container.memory or target.memory < container.memory
        if is_less and container.state in UP_STATES:
            await self._check_memory(target, container.id)
        entry = LimitsEntry(
            header=job.header,
            before=app,
            target=target,
            container_id=container.id,
            cpu=container.cpu,
            memory=container.memory,
        )
        await job.commit(entry)
        await self.recover(job, entry)

    async def _check_memory(self, target: App, container_id: str) -> None:
        used = await self._containers.used_memory(container_id)
        if used is not None and used > target.memory * MIB:
            raise MemoryInUse(
                f"app `{target.name}` uses {used // MIB} MiB now and would be killed"
                f" with {target.memory} MiB; stop it first, or leave it more"
            )

    async def recover(self, _job: Job, entry: LimitsEntry) -> None:
        """Set the new limits; if the engine refuses, those that the container had. MemoryInUse."""
        try:
            await self._containers.limit(entry.container_id, entry.target)
        except EngineRefused as error:
            await self._put_back(entry)
            await self._repository.finish(entry, entry.before, error=error)
            raise MemoryInUse(
                f"the limits cannot be changed at present: {error}; stop the app first"
            ) from error
        target = entry.target
        message = target.message if target.password_pending else None
        await self._repository.finish(entry, msgspec.structs.replace(target, message=message))

    async def _put_back(self, entry: LimitsEntry) -> None:
        before = entry.before
        limits = msgspec.structs.replace(
            before, cpu=entry.cpu or before.cpu, memory=entry.memory or before.memory
        )
        try:
            await self._containers.limit(entry.container_id, limits)
        except EngineRefused as error:  # an engine that refuses both has kept the limits
            self._log.debug("limits not put back", app=entry.app, reason=str(error))
