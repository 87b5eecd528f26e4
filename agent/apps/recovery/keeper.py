"""Apps that should run and are down: when they are started, and which are left down."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

from agent.apps.containers.manager import GONE_STATES, UP_STATES
from agent.apps.errors import AppError
from agent.apps.operations.restart import RestartOperation
from agent.apps.recovery.restart_schedule import AGENT, RestartSchedule, ScheduledObserver
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.engine.errors import EngineError, EngineRefused
from agent.engine.models import Container, EngineRun
from agent.engine.protocol import Engine
from agent.model import App, Down

# A host that shuts down stops its containers, too; its engine ends soon after.
ENGINE_GOES_ON_SECONDS = 10.0


class StopFinder:
    """Tells which containers somebody stopped through the engine.

    A ``stop`` event does not say who asked for it. The engine stops all containers when it goes
    down; and after a crash it stops those that it finds alive, before it serves anybody. It may
    forget an event soon, so the stops of containers that are down are kept.
    """

    def __init__(self, *, engine: Engine, clock: Callable[[], float]) -> None:
        self.engine = engine
        self._clock = clock
        self._stopped_at: dict[str, float] = {}

    async def seconds_since(self, container_id: str, run: EngineRun | None) -> float | None:
        """Return how long ago somebody stopped a container that is down, None if nobody did."""
        stopped_at = self._stopped_at.get(container_id)
        if stopped_at is None:
            stopped_at = await self.engine.stopped_at(container_id)
        if stopped_at is None or run is None or stopped_at < run.began_at:
            return None
        self._stopped_at[container_id] = stopped_at
        return max(0.0, self._clock() - stopped_at)

    def keep(self, down: Collection[str]) -> None:
        """Forget all containers but these, which are down."""
        self._stopped_at = {
            each: self._stopped_at[each] for each in self._stopped_at if each in down
        }


class Keeper(ScheduledObserver):
    """Starts the apps that should run and that the engine has given up, for as long as it takes.

    The engine itself restarts apps that crash. ``failed`` and ``missing`` apps are left alone, and
    so is what somebody stopped through the engine, until a start, a rebuild or the engine's next
    run.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        runner: OperationRunner,
        operation: RestartOperation,
        stops: StopFinder,
        schedule: RestartSchedule,
    ) -> None:
        super().__init__(runner, schedule)
        self._repository = repository
        self._operation = operation
        self._stops = stops

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Start what is due, in the background; ``containers`` are all, by id."""
        down = list[tuple[App, Container]]()
        for app in self._begin(self._repository.existing()):
            container = containers.get(app.container_id or "")
            if container is None:
                continue
            if container.state in UP_STATES:
                await self._up(app)
            elif container.state not in GONE_STATES and app.desired == "running":
                down.append((app, container))
        self._stops.keep({container.id for _, container in down})
        if down:
            await self._keep_all(down)

    async def _keep_all(self, down: Collection[tuple[App, Container]]) -> None:
        run = await self._stops.engine.current_run()
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
                await self._runner.perform(app.name, "start", AGENT, self._operation.found_up)

    async def _keep(self, app: App, container: Container, run: EngineRun | None) -> None:
        if not self._schedule.is_due(app.name):
            self._waiting.add(app.name)
            return
        # Where a start failed, the agent has stopped it itself.
        ago = await self._stops.seconds_since(container.id, run) if app.down is None else None
        if ago is not None and ago < ENGINE_GOES_ON_SECONDS:
            self._schedule.postpone(app.name, ENGINE_GOES_ON_SECONDS - ago)
            self._waiting.add(app.name)
        elif ago is not None and run is not None:
            work = partial(self._operation.leave_down, engine_run=run.id)
            with suppress(AppError, EngineError):
                await self._runner.perform(app.name, "start", AGENT, work)
        else:
            await self._attempt(app.name, "start", self._operation.start)


def _stays_down(down: Down | None, run: EngineRun | None) -> bool:
    if down is None or down.cause == "not_started":
        return False
    return run is None or down.engine_run == run.id
