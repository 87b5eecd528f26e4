"""Restarting apps that are unhealthy."""

from collections.abc import Mapping
from functools import partial

from agent.apps.health.findings import Findings
from agent.apps.operations.restart import RestartOperation
from agent.apps.recovery.restart_schedule import RestartSchedule, ScheduledObserver
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.engine.models import Container


class HealthRestarter(ScheduledObserver):
    """Restarts the apps that the check in their record finds unhealthy."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        operation: RestartOperation,
        findings: Findings,
        schedule: RestartSchedule,
    ) -> None:
        super().__init__(runner, schedule)
        self._repository = repository
        self._operation = operation
        self._findings = findings

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Restart what is due, in the background; ``containers`` are all, by id."""
        for app in self._begin(self._repository.existing()):
            container = containers.get(app.container_id or "")
            if container is None or app.health is None or app.desired != "running":
                continue
            health = self._findings.shown(app, container).health
            if health == "healthy":
                self._schedule.well(app.name)
            elif health == "unhealthy" and self._schedule.is_due(app.name):
                reason = self._findings.of(container.id).reason
                work = partial(self._operation.restart, reason=reason)
                await self._attempt(app.name, "restart", work)
            elif health == "unhealthy":
                self._waiting.add(app.name)
