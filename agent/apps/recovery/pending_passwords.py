"""Passwords that wait for an app to run are set after somebody else has started it."""

from collections.abc import Mapping
from contextlib import suppress

from agent.apps.errors import AppBusy
from agent.apps.observer import ContainerObserver
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.runner import OperationRunner
from agent.apps.recovery.restart_schedule import AGENT
from agent.apps.repository.repository import AppRepository
from agent.engine.models import Container


class PendingPasswords(ContainerObserver):
    """Sets the passwords that wait."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        password: PasswordOperation,
    ) -> None:
        self._repository = repository
        self._runner = runner
        self._password = password

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Begin to set the passwords that wait for apps which others have started."""
        for app in self._repository.existing():
            container = containers.get(app.container_id or "")
            is_running = container is not None and container.state == "running"
            # An unfinished operation is recovered first, on the schedule of its retries.
            is_idle = not self._runner.is_busy(app.name)
            if app.password_pending and is_running and is_idle:
                # In the background: `chpasswd` is a program of the app, which may hang. If it
                # fails, the runner logs it and the password stays pending.
                with suppress(AppBusy):
                    await self._runner.start(app.name, "keys", AGENT, self._password.apply_pending)
