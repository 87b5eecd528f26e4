"""Apps that went down with the engine are started; apps that others started get their password."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.containers.manager import UP_STATES
from agent.apps.errors import AppBusy, AppError
from agent.apps.operations.lifecycle import StartOperation
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.runner import OperationRunner, Requester
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, ContainerEvent, EngineError
from agent.model import App

AGENT = Requester(name="agent", wait_seconds=0)


class Outage:
    """Finds the containers that went down with the engine.

    An engine that crashes may find their processes at its next start, end them, and count that as a
    stop by a user. A container that ended while the engine was there was stopped, and stays down.
    """

    def __init__(self) -> None:
        self._up: set[str] = set()
        self._gone = False

    def observe(self, event: ContainerEvent) -> None:
        """Note a start or an end that the engine reported."""
        if event.action == "start":
            self._up.add(event.container_id)
        elif event.action == "die" and not self._gone:
            self._up.discard(event.container_id)

    def begin(self) -> None:
        """Note that the engine went away."""
        self._gone = True

    def end(self, containers: Mapping[str, Container], apps: Iterable[App]) -> Collection[str]:
        """Note that the engine is there, with these containers.

        Returns:
            The names of the apps that should run and went down with the engine.

        """
        down = [
            app.name
            for app in apps
            if app.desired == "running"
            and app.container_id in self._up
            and app.container_id in containers
            and containers[app.container_id].state not in UP_STATES
        ]
        lost = down if self._gone else []
        self._gone = False
        self._up = {each.id for each in containers.values() if each.state in UP_STATES}
        return lost


class Restarter:
    """Starts apps and sets passwords without a request."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        start: StartOperation,
        password: PasswordOperation,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._runner = runner
        self._start = start
        self._password = password
        self._log = log

    async def restart(self, outage: Outage, containers: Mapping[str, Container]) -> None:
        """Start the apps that went down with the engine, in the background."""
        for name in outage.end(containers, self._repository.existing()):
            with suppress(AppBusy):
                await self._runner.start(name, "start", AGENT, self._start.run)
                self._log.warning("starting an app that went down with the engine", app=name)

    async def set_passwords(self, containers: Mapping[str, Container]) -> None:
        """Set the passwords that wait for apps which others have started."""
        for app in self._repository.existing():
            container = containers.get(app.container_id or "")
            is_running = container is not None and container.state == "running"
            # An unfinished operation is recovered first, on the schedule of its retries.
            is_idle = self._runner.status(app.name) is None
            if app.password_pending and is_running and is_idle:
                # If it fails, the runner logs it and the password stays pending.
                with suppress(AppError, EngineError):
                    await self._runner.perform(
                        app.name, "keys", AGENT, self._password.apply_pending
                    )
