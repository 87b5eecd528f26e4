"""Keeping apps as they are wanted: up and healthy, or down, with the password that was set."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agent.apps.containers.containers import GONE_STATES, UP_STATES
from agent.apps.errors import AppError
from agent.apps.host import Host
from agent.apps.operations import keep_up
from agent.apps.operations.password import apply_pending
from agent.apps.recovery.inspector import Inspector
from agent.apps.recovery.restart_schedule import AGENT, ScheduledObserver
from agent.apps.runner.runner import OperationRunner
from agent.engine.errors import EngineError, EngineRefused
from agent.engine.models import Container, EngineRun
from agent.model import App, Down

if TYPE_CHECKING:
    from agent.journal import OperationKind

# A host that shuts down stops its containers, too; its engine ends soon after.
ENGINE_GOES_ON_SECONDS = 10.0
# On a full disk the engine stores no restart policy. It starts a stopped app at its own start then.
LONGEST_AUTOSTART_PAUSE_SECONDS = 4.0


class Keeper(ScheduledObserver):
    """Starts the apps that should run and that the engine has given up, for as long as it takes.

    The engine itself restarts apps that crash. ``failed`` and ``missing`` apps are left alone, and
    so is what somebody stopped through the engine, until a start, a rebuild or the engine's next
    run.
    """

    def __init__(self, host: Host, runner: OperationRunner) -> None:
        super().__init__(host, runner)
        # When somebody stopped containers that are down, by id. The engine may forget that soon.
        self._stopped_at: dict[str, float] = {}

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Start what is due, in the background; ``containers`` are all, by id."""
        down = list[tuple[App, Container]]()
        for app in self._begin():
            container = containers.get(app.container_id or "")
            if container is None:
                continue
            if container.state in UP_STATES:
                await self._up(app)
            elif container.state not in GONE_STATES and app.desired == "running":
                down.append((app, container))
        ids = {container.id for _, container in down}
        self._stopped_at = {each: at for each, at in self._stopped_at.items() if each in ids}
        if down:
            await self._keep_all(down)

    async def _keep_all(self, down: Collection[tuple[App, Container]]) -> None:
        run = await self._host.context.engine.current_run()
        refused = list[EngineRefused]()
        for app, container in down:
            if not _stays_down(app.down, run):
                try:
                    await self._keep(app, container, run)
                except EngineRefused as error:  # the other apps are started all the same
                    refused.append(error)
        if refused:
            raise refused[0]

    async def _up(self, app: App) -> None:
        self._schedule.well(app.name)
        if app.down is not None:
            with suppress(AppError, EngineError):
                work = partial(keep_up.found_up, self._host)
                await self._runner.perform(app.name, "start", AGENT, work)

    async def _keep(self, app: App, container: Container, run: EngineRun | None) -> None:
        if not self._schedule.is_due(app.name):
            self._waiting.add(app.name)
            return
        # Where a start failed, the agent has stopped it itself.
        ago = await self._seconds_since_stop(container.id, run) if app.down is None else None
        if ago is not None and ago < ENGINE_GOES_ON_SECONDS:
            self._schedule.postpone(app.name, ENGINE_GOES_ON_SECONDS - ago)
            self._waiting.add(app.name)
        elif ago is not None and run is not None:
            work = partial(keep_up.leave_down, self._host, engine_run=run.id)
            with suppress(AppError, EngineError):
                await self._runner.perform(app.name, "start", AGENT, work)
        else:
            await self._attempt(app.name, "start", keep_up.start_down)

    async def _seconds_since_stop(self, container_id: str, run: EngineRun | None) -> float | None:
        """Return how long ago somebody stopped a container that is down, None if nobody did.

        A ``stop`` event does not say who asked for it. The engine stops all containers when it goes
        down; and after a crash it stops those that it finds alive, before it serves anybody.
        """
        context, stopped_at = self._host.context, self._stopped_at.get(container_id)
        if stopped_at is None:
            stopped_at = await context.engine.stopped_at(container_id)
        if stopped_at is None or run is None or stopped_at < run.began_at:
            return None
        self._stopped_at[container_id] = stopped_at
        return max(0.0, context.clock() - stopped_at)


def _stays_down(down: Down | None, run: EngineRun | None) -> bool:
    if down is None or down.cause == "not_started":
        return False
    return run is None or down.engine_run == run.id


class HealthRestarter(ScheduledObserver):
    """Restarts the apps that the check in their record finds unhealthy."""

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Restart what is due, in the background; ``containers`` are all, by id."""
        findings = self._host.context.health.findings
        for app in self._begin():
            container = containers.get(app.container_id or "")
            if container is None or app.health is None or app.desired != "running":
                continue
            health = findings.shown(app, container).health
            if health == "healthy":
                self._schedule.well(app.name)
            elif health == "unhealthy" and self._is_due(app.name):
                reason = findings.of(container.id).reason
                work = partial(keep_up.restart_unhealthy, reason=reason)
                await self._attempt(app.name, "restart", work)


class AutostartKeeper(ScheduledObserver):
    """Lets the engine start the apps by itself that should run, and no others."""

    def __init__(self, host: Host, runner: OperationRunner, inspector: Inspector) -> None:
        super().__init__(host, runner, longest=LONGEST_AUTOSTART_PAUSE_SECONDS)
        self._inspector = inspector

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Change what is due, in the background; ``containers`` are all, by id."""
        for app in self._begin():
            container = containers.get(app.container_id or "")
            if container is None:
                continue
            wanted = app.desired == "running"
            if self._inspector.autostarting.get(container.id, wanted) == wanted:
                self._schedule.well(app.name)
            elif self._is_due(app.name):
                operation: OperationKind = "start" if wanted else "stop"
                repeated = self._schedule.is_repeated(app.name)
                work = partial(keep_up.set_autostart, repeated=repeated)
                await self._attempt(app.name, operation, work)


class PendingPasswords(ScheduledObserver):
    """Sets the passwords that wait: for an app that somebody else starts, or that were refused."""

    def __init__(self, host: Host, runner: OperationRunner) -> None:
        super().__init__(host, runner)
        self._seen = set[str]()

    def is_due(self) -> bool:
        """Return whether a password has become pending, or an app that was busy is no more.

        No event of the engine tells of a password that it refused to set.
        """
        return super().is_due() or not self._seen.issuperset(self._pending())

    def _pending(self) -> set[str]:
        return {
            app.name for app in self._host.context.repository.existing() if app.password_pending
        }

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Begin to set the passwords that wait for apps which run now."""
        self._seen = self._pending()
        for app in self._begin():
            container = containers.get(app.container_id or "")
            is_running = container is not None and container.state == "running"
            if not (app.password_pending and is_running):
                self._schedule.well(app.name)
            elif self._is_due(app.name):
                # In the background: `chpasswd` is a program of the app, which may hang.
                await self._attempt(app.name, "keys", apply_pending)
