"""Keeping the engine from starting stopped apps by itself."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from agent.apps.operations.restart import RestartOperation
from agent.apps.recovery.inspector import Inspector
from agent.apps.recovery.restart_schedule import RestartSchedule, ScheduledObserver
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.engine.models import Container

if TYPE_CHECKING:
    from agent.journal import OperationKind


# On a full disk the engine stores no restart policy. It starts a stopped app at its own start then.
LONGEST_PAUSE_SECONDS = 4.0


class AutostartKeeper(ScheduledObserver):
    """Lets the engine start the apps by itself that should run, and no others."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        operation: RestartOperation,
        inspector: Inspector,
        schedule: RestartSchedule,
    ) -> None:
        super().__init__(runner, schedule)
        self._repository = repository
        self._operation = operation
        self._inspector = inspector

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Change what is due, in the background; ``containers`` are all, by id."""
        for app in self._begin(self._repository.existing()):
            container = containers.get(app.container_id or "")
            if container is None:
                continue
            wanted = app.desired == "running"
            if self._inspector.autostarting.get(container.id, wanted) == wanted:
                self._schedule.well(app.name)
            elif self._schedule.is_due(app.name):
                operation: OperationKind = "start" if wanted else "stop"
                repeated = self._schedule.is_repeated(app.name)
                work = partial(self._operation.set_autostart, repeated=repeated)
                await self._attempt(app.name, operation, work)
            else:
                self._waiting.add(app.name)
