"""Keeping an app that should run up and healthy, without a request."""

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.admission import Admission
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.counters import AppCounters
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.engine.errors import DiskFull, EngineRefused
from agent.engine.models import InspectedContainer
from agent.journal import StartEntry, StopEntry
from agent.model import App, Down, not_started


class RestartOperation:
    """Starts an app that should run and is down, or notes that it is left down; restarts others.

    Only a restart has an entry in the journal. If any of the others breaks off, the next look at
    the container finds out.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        containers: ContainerManager,
        counters: AppCounters,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._containers = containers
        self._counters = counters
        self._log = log

    async def start(self, job: Job) -> None:
        """Start the app's container, and leave it to the engine whether it stays up.

        Raises:
            EngineRefused: it does not start; the app holds the reason and the number of tries.

        """
        app = self._repository.get(job.app)
        container = await self._down(app)
        if container is None:
            return
        self._log.warning("starting an app that is down", app=app.name, reason=container.error)
        self._counters.restarts.labels("down").inc()
        reason = f"it was down: {container.error}" if container.error else "it was down"
        job.header = msgspec.structs.replace(job.header, reason=reason)
        try:
            await self._containers.commands.start(container)
        except EngineRefused as error:
            failed = not_started(app, error)
            await self._repository.put(failed, outcome_of=job.header, error=error)
            raise
        started = msgspec.structs.replace(app, down=None)
        await self._repository.put(started, outcome_of=job.header)

    async def restart(self, job: Job, *, reason: str) -> None:
        """Stop a running container, which is unhealthy for this reason, and start it again.

        Raises:
            DiskFull: it could not be started again, and was not stopped.
            EngineRefused: it does not start; the app holds the reason and the number of tries.

        """
        app = self._repository.get(job.app)
        container = await self._containers.current(app)
        if container is None or container.state != "running" or app.desired != "running":
            return
        job.header = msgspec.structs.replace(job.header, reason=f"it was unhealthy: {reason}")
        try:
            await self._admission.check_disk()
        except DiskFull as error:
            await self._repository.put(app, outcome_of=job.header, error=error)
            raise
        self._log.warning("restarting an app that is unhealthy", app=app.name)
        self._counters.restarts.labels("unhealthy").inc()
        entry = StartEntry(header=job.header, before=app, target=app)
        await job.commit(entry)
        await self._containers.stop(container)
        try:
            await self._containers.commands.start(container)
        except EngineRefused as error:
            await self._repository.finish(entry, not_started(app, error), error=error)
            raise
        await self._repository.finish(entry, app)

    async def set_autostart(self, job: Job, *, repeated: bool) -> None:
        """Let the engine start the app by itself if it should run, and not if it was stopped.

        If the engine has started a stopped app meanwhile, that is stopped. One that somebody has
        started by hand is left alone: the engine would not have done so. The log has the first of
        ``repeated`` failures.

        Raises:
            EngineRefused: it is as it was.

        """
        job.repeated = repeated
        app = self._repository.get(job.app)
        container = await self._containers.current(app)
        wanted = app.desired == "running"
        if container is None or container.autostart == wanted:
            return
        if wanted or container.state not in UP_STATES:
            await self._containers.set_autostart(container, enabled=wanted)
            return
        self._log.warning("stopping an app that the engine has started", app=app.name)
        reason = "the container engine had started it, though it was stopped"
        job.header = msgspec.structs.replace(job.header, reason=reason)
        entry = StopEntry(header=job.header, target=app)
        await job.commit(entry)
        await self._containers.stop_for_good(container)
        await self._repository.finish(entry, app)

    async def leave_down(self, job: Job, engine_run: str) -> None:
        """Record that somebody stopped the app in this run of the engine."""
        app = self._repository.get(job.app)
        if await self._down(app) is not None:
            self._log.warning("app was stopped through the engine and is left down", app=app.name)
            await self._put(app, Down(cause="stopped", engine_run=engine_run))

    async def found_up(self, job: Job) -> None:
        """Forget why the app was down."""
        await self._put(self._repository.get(job.app), None)

    async def _put(self, app: App, down: Down | None) -> None:
        if app.down != down:
            await self._repository.put(msgspec.structs.replace(app, down=down))

    async def _down(self, app: App) -> InspectedContainer | None:
        """Return the container of an app that should run and does not."""
        container = await self._containers.current(app)
        is_down = container is not None and container.state not in UP_STATES
        return container if is_down and app.desired == "running" else None
