"""Keeping apps as they are wanted: up and healthy, or down, with the password that was set."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from agent.apps import requests
from agent.apps.containers.containers import GONE_STATES, UP_STATES
from agent.apps.errors import AppBusy, AppError
from agent.apps.host import Host
from agent.apps.requests import Request
from agent.apps.runner.runner import OperationRunner, Requester
from agent.apps.upkeep.inspector import Inspector
from agent.apps.upkeep.reconciler import ContainerObserver
from agent.engine.errors import EngineError, EngineRejected
from agent.engine.models import Container, EngineRun
from agent.model import App, Down
from runtime.pauses import Pauses

AGENT = Requester(name="agent", wait_seconds=0, actor="agent")
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0
# After an app was up for this long, and for as long as its last pause, the pauses begin anew.
WELL_SECONDS = 10.0
# A host that shuts down stops its containers, too; its engine ends soon after.
ENGINE_GOES_ON_SECONDS = 10.0
# On a full disk the engine stores no restart policy. It starts a stopped app at its own start then.
LONGEST_AUTOSTART_PAUSE_SECONDS = 4.0


class RestartSchedule:
    """When to start each app again: after 1 s, then after a pause that doubles up to 5 min.

    ``longest`` is the longest pause in seconds.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, *, longest: float = MAX_PAUSE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, longest, monotonic=monotonic)
        self._well_since: dict[str, float] = {}
        self._waiting = set[str]()

    def is_due(self, name: str) -> bool:
        """Record that an app is down; return whether its start is due. If not, it waits."""
        self._forget_if_over(name)
        if self._well_since.pop(name, None) is not None:
            self._pauses.postpone(name, self._pauses.last(name))
        elif not self._pauses.last(name):
            self._pauses.delay(name)
        is_due = self._pauses.is_due(name)
        if not is_due:
            self._waiting.add(name)
        return is_due

    def attempted(self, name: str) -> None:
        """Record that an app is started now, so that the next time comes after a longer pause."""
        self._pauses.delay(name)

    def is_repeated(self, name: str) -> bool:
        """Return whether an app that is down was started before, and did not stay up."""
        return self._pauses.last(name) > FIRST_PAUSE_SECONDS

    def postpone(self, name: str, seconds: float) -> None:
        """Check an app again after the given seconds."""
        self._pauses.postpone(name, seconds)
        self._waiting.add(name)

    def well(self, name: str) -> None:
        """Record that an app is up."""
        if self._pauses.last(name):
            self._well_since.setdefault(name, self._monotonic())
            self._forget_if_over(name)

    def _forget_if_over(self, name: str) -> None:
        since = self._well_since.get(name)
        needed = max(WELL_SECONDS, self._pauses.last(name))
        if since is not None and self._monotonic() - since >= needed:
            del self._well_since[name]
            self._pauses.forget(name)

    def begin(self, names: Collection[str]) -> None:
        """Begin to look at these apps: forget all others, and which of these wait."""
        self._pauses.keep(names)
        self._well_since = {each: at for each, at in self._well_since.items() if each in names}
        self._waiting = set()

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until a start that waits is due, at most ``most``."""
        return self._pauses.seconds_to_next(self._waiting - self._well_since.keys(), most)


class Keeper(ContainerObserver):
    """Keeps apps as they are wanted, by operations in the background.

    It starts the apps that should run and that the engine has given up, for as long as it takes:
    the engine itself restarts apps that crash. ``failed`` and ``missing`` apps are left alone, and
    so is what somebody stopped through the engine, until a start, a rebuild or the engine's next
    run. An app that is busy is looked at again when its operation has ended.
    """

    def __init__(self, host: Host, runner: OperationRunner, inspector: Inspector) -> None:
        self._host = host
        self._runner = runner
        self._inspector = inspector
        self._starts, self._restarts, self._passwords = (RestartSchedule() for _ in range(3))
        self._autostarts = RestartSchedule(longest=LONGEST_AUTOSTART_PAUSE_SECONDS)
        self._schedules = (self._starts, self._restarts, self._autostarts, self._passwords)
        self._run: EngineRun | None = None
        self._busy = set[str]()
        self._seen_pending = set[str]()
        # When somebody stopped containers that are down, by id. The engine may forget that soon.
        self._stopped_at: dict[str, float] = {}

    def is_due(self) -> bool:
        """Return whether an app is busy no more, or a password has become pending.

        The engine sends no event of a password that it refused to set.
        """
        is_idle = any(not self._runner.is_busy(name) for name in self._busy)
        return is_idle or not self._seen_pending.issuperset(self._pending())

    def _pending(self) -> set[str]:
        apps = self._host.context.repository.existing()
        return {app.name for app in apps if app.password_pending}

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until it is to act on an app, ``most`` at most."""
        return min(each.seconds_to_next(most) for each in self._schedules)

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Begin what is due of each app that is not busy; ``containers`` are all, by id."""
        repository = self._host.context.repository
        names = [app.name for app in repository.existing()]
        for schedule in self._schedules:
            schedule.begin(names)
        self._busy, self._seen_pending, self._run = set(), self._pending(), None
        self._stopped_at = {
            each: at
            for each, at in self._stopped_at.items()
            if each in containers and containers[each].state not in UP_STATES
        }
        rejected = list[EngineRejected]()
        for name in names:
            for keep in (self._start, self._restart, self._set_autostart, self._set_password):
                if self._runner.is_busy(name):
                    self._busy.add(name)
                    break
                app = repository.find(name)
                container = containers.get(app.container_id or "") if app is not None else None
                if app is None or container is None:
                    break
                try:
                    await keep(app, container)
                except EngineRejected as error:  # the rest is done all the same
                    rejected.append(error)
        if rejected:
            raise rejected[0]

    def _is_due(self, schedule: RestartSchedule, app: App) -> bool:
        """Return whether to begin work now that waits for a program of an app.

        Work for which the agent has no place is due again when an operation ends.
        """
        return schedule.is_due(app.name) and self._runner.has_own_place(app.name)

    async def _attempt(self, schedule: RestartSchedule, request: Request) -> None:
        """Begin an operation of an app in the background."""
        schedule.attempted(request.app)
        self._busy.add(request.app)
        with suppress(AppBusy):
            await self._runner.start(request, AGENT)

    async def _note(self, request: Request) -> None:
        with suppress(AppError, EngineError):
            await self._runner.run(request, AGENT)

    async def _start(self, app: App, container: Container) -> None:
        """Start an app that should run and is down."""
        if container.state in UP_STATES:
            self._starts.well(app.name)
            if app.down is not None:
                await self._note(requests.FoundUp(app.name))
        elif container.state not in GONE_STATES and app.desired == "running":
            if self._run is None:
                self._run = await self._host.context.engine.current_run()
            if not _stays_down(app.down, self._run) and self._starts.is_due(app.name):
                await self._start_or_leave(app, container, self._run)

    async def _start_or_leave(self, app: App, container: Container, run: EngineRun | None) -> None:
        # Where a start failed, the agent has stopped it itself.
        ago = await self._seconds_since_stop(container.id, run) if app.down is None else None
        if ago is not None and ago < ENGINE_GOES_ON_SECONDS:
            self._starts.postpone(app.name, ENGINE_GOES_ON_SECONDS - ago)
        elif ago is not None and run is not None:
            await self._note(requests.LeaveDown(app.name, run.id))
        else:
            await self._attempt(self._starts, requests.StartDown(app.name))

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

    async def _restart(self, app: App, container: Container) -> None:
        """Restart an app that the check in its record finds unhealthy."""
        if app.health is None or app.desired != "running":
            return
        findings, schedule = self._host.context.health.findings, self._restarts
        health = findings.shown(app, container).health
        if health == "healthy":
            schedule.well(app.name)
        elif health == "unhealthy" and self._is_due(schedule, app):
            reason = findings.of(container.id).reason
            await self._attempt(schedule, requests.RestartUnhealthy(app.name, reason))

    async def _set_autostart(self, app: App, container: Container) -> None:
        """Let the engine start an app by itself that should run, and no other."""
        schedule, wanted = self._autostarts, app.desired == "running"
        if self._inspector.autostarting.get(container.id, wanted) == wanted:
            schedule.well(app.name)
        elif self._is_due(schedule, app):
            repeated = schedule.is_repeated(app.name)
            kind = requests.LetStart if wanted else requests.LeaveStopped
            await self._attempt(schedule, kind(app.name, repeated))

    async def _set_password(self, app: App, container: Container) -> None:
        """Set a password that waits: for its app to run, or since it was rejected."""
        if not (app.password_pending and container.state == "running"):
            self._passwords.well(app.name)
        elif self._is_due(self._passwords, app):
            # In the background: `chpasswd` is a program of the app, which may hang.
            await self._attempt(self._passwords, requests.ApplyPassword(app.name))


def _stays_down(down: Down | None, run: EngineRun | None) -> bool:
    if down is None or down.cause == "not_started":
        return False
    return run is None or down.engine_run == run.id
