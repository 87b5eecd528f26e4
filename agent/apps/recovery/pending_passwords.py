"""Passwords that wait are set: for an app that somebody else starts, or that were refused."""

from collections.abc import Mapping

from agent.apps.operations.password import PasswordOperation
from agent.apps.recovery.restart_schedule import RestartSchedule, ScheduledObserver
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.engine.models import Container


class PendingPasswords(ScheduledObserver):
    """Sets the passwords that wait."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        password: PasswordOperation,
        schedule: RestartSchedule,
    ) -> None:
        super().__init__(runner, schedule)
        self._repository = repository
        self._password = password
        self._seen = set[str]()

    def is_due(self) -> bool:
        """Return whether a password has become pending, or an app that was busy is no more.

        No event of the engine tells of a password that it refused to set.
        """
        return super().is_due() or not self._seen.issuperset(self._pending())

    def _pending(self) -> set[str]:
        return {app.name for app in self._repository.existing() if app.password_pending}

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Begin to set the passwords that wait for apps which run now."""
        self._seen = self._pending()
        for app in self._begin(self._repository.existing()):
            container = containers.get(app.container_id or "")
            is_running = container is not None and container.state == "running"
            if not (app.password_pending and is_running):
                self._schedule.well(app.name)
            elif self._schedule.is_due(app.name):
                # In the background: `chpasswd` is a program of the app, which may hang.
                await self._attempt(app.name, "keys", self._password.apply_pending)
            else:
                self._waiting.add(app.name)
