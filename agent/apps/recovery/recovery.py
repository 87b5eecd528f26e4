"""Ending changes that broke off, because the agent or the engine went away under them."""

from collections.abc import Collection, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.container_spec import AGENT_LABEL, APP_LABEL
from agent.apps.containers import UP_STATES, Workbench
from agent.apps.operations.create import CreateOperation
from agent.apps.operations.credentials import LabelsAndCredentials
from agent.apps.operations.lifecycle import Lifecycle
from agent.apps.operations.runner import OperationRunner, RunningOperation
from agent.apps.operations.update import UpdateOperation
from agent.apps.recovery.adoption import Adoption
from agent.engine.protocol import (
    Container,
    EngineError,
    EngineUnavailable,
    NameInUse,
    ObjectNotFound,
)
from agent.model import Change


class Recovery:
    """Finishes or undoes each row that is left in the journal, and removes what nobody needs."""

    def __init__(
        self,
        *,
        bench: Workbench,
        operations: OperationRunner,
        create_operation: CreateOperation,
        update_operation: UpdateOperation,
        lifecycle: Lifecycle,
        labels_and_credentials: LabelsAndCredentials,
        adoption: Adoption,
    ) -> None:
        self._bench = bench
        self._operations = operations
        self._create_operation = create_operation
        self._update_operation = update_operation
        self._lifecycle = lifecycle
        self._labels_and_credentials = labels_and_credentials
        self._adoption = adoption
        self._logged: set[str] = set()

    async def recover(self, job: RunningOperation, change: Change) -> None:
        """End one change that broke off."""
        log = self._bench.log
        (log.debug if job.repeated else log.warning)(
            "settling a change that broke off", app=change.app, operation=change.operation
        )
        match change.operation:
            case "create":
                await self._create_operation.recover(job, change)
            case "update" | "rebuild":
                await self._update_operation.recover(change)
            case "start":
                await self._recover_start(change)
            case "stop":
                await self._lifecycle.settle_stop(change)
            case "delete":
                await self._lifecycle.settle_delete(change)
            case _:  # a label is added in one step, and leaves no row
                await self._labels_and_credentials.settle_password(change)

    async def _recover_start(self, change: Change) -> None:
        # The start of an app without a container is a replacement of none by one.
        replaces = change.before is not None and change.before.container_id is None
        if replaces or change.swapped or await self._bench.made_by(change):
            await self._update_operation.recover(change)
        else:
            await self._lifecycle.settle_start(change)

    async def rename(self, containers: Mapping[str, Container]) -> None:
        """Give containers their apps' names, where a foreign one held the name at first."""
        for app in self._bench.repository.existing():
            container = containers.get(app.container_id or "")
            idle = self._operations.current(app.name) is None
            if container is not None and idle and container.name.startswith(f"{app.name}.NEXT-"):
                with suppress(NameInUse, ObjectNotFound):
                    await self._bench.engine.rename(container.id, app.name)

    async def sweep(self) -> None:
        """Remove containers that a change left which was taken back.

        Such a one is left when the engine does what it was asked to after we gave up on it. What
        else belongs to no app is taken back by its app, or left alone: it may be somebody's copy,
        or the database an old one.
        """
        listed = await self._bench.engine.containers(label=APP_LABEL)
        here = {container.id for container in listed}
        for container in listed:
            ours = container.labels.get(AGENT_LABEL) == self._bench.repository.agent
            if self._is_stray(container) and (ours or self._bench.is_orphan(container)):
                await self._sweep(container, here)

    def _is_stray(self, container: Container) -> bool:
        name = container.labels[APP_LABEL]
        app = self._bench.repository.find(name)
        busy = (
            self._operations.current(name) is not None
            or self._bench.repository.change(name) is not None
        )
        return not busy and (app is None or app.container_id != container.id)

    async def _sweep(self, container: Container, here: Collection[str]) -> None:
        log = self._bench.log.bind(app=container.labels[APP_LABEL], container=container.name)
        if self._bench.is_orphan(container):
            if container.state not in UP_STATES:
                await self._remove(container, log)
        elif (
            not await self._adoption.take_back(container, here) and container.id not in self._logged
        ):
            self._logged.add(container.id)
            log.warning("container of no app left alone")

    async def _remove(self, container: Container, log: FilteringBoundLogger) -> None:
        try:
            await self._bench.remove(container.id)
        except EngineUnavailable:
            raise
        except EngineError as error:  # nothing else is to suffer from it
            if container.id not in self._logged:
                self._logged.add(container.id)
                log.warning("container not removed", reason=str(error))
        else:
            log.warning("container removed that a broken off change left")

    async def start(self, job: RunningOperation, name: str) -> None:
        """Start an app that went down with the engine."""
        await self._lifecycle.start(job, name)

    async def supply_password(self, name: str) -> None:
        """Set the password of an app that somebody else started."""
        await self._labels_and_credentials.supply_password(name)

    async def adopt(self) -> None:
        """Read apps back from their containers, where the database is new."""
        if not self._bench.repository.adopted:
            await self._adoption.adopt()
