"""The apps for which heartbeats have the label ``serving:NAME:PORT``."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from time import monotonic

import msgspec

from agent.apps.context import AgentContext
from agent.apps.health import Finding, Tally
from agent.apps.upkeep.reconciler import ContainerObserver
from agent.engine.models import Container, ContainerEvent
from agent.model import App, HealthCheck
from agent.state.files import write_private

SERVING_FILE = "serving.json"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a container that serves; ``address`` is the one that its port is bound to."""

    container_id: str
    started_at: float
    address: str | None


class Serving(ContainerObserver):
    """Decides which apps serve: load balancers may send requests to them.

    An app begins to serve when it is healthy; without a check, when it has run for
    ``settle_seconds``. From then on only a known reason ends it. So what serves is kept in a file
    for the agent's next start, and the checks over HTTP go on while the engine is unreachable.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._file = context.repository.store.folder / SERVING_FILE
        self._served: dict[str, Served] = {}
        with suppress(OSError, ValueError):  # then the apps are checked first
            self._served = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Served])
        self._written = self._served
        self._settled_at: list[float] = []
        self._checks: dict[str, asyncio.Task[None]] = {}
        # What does not answer while the engine is unreachable.
        self._unanswered: set[str] = set()

    def names(
        self, apps: Collection[App], containers: Mapping[str, Container] | None
    ) -> Collection[str]:
        """Return the names of those of all apps that serve.

        ``containers`` are all, by id, with what the checks have found; None if the engine is
        unreachable.
        """
        if containers is None:
            served = {app.name: run for app in apps if (run := self._known(app)) is not None}
            self._check_without_engine([app for app in apps if app.name in served])
        else:
            self._end_checks()
            served = {
                app.name: run
                for app in apps
                if (run := self._run(app, containers.get(app.container_id or ""))) is not None
            }
        self._keep(served)
        return served.keys() - self._unanswered

    def _known(self, app: App) -> Served | None:
        """Return the run of an app that served, unless it is to stop or has another container."""
        known, entry = self._served.get(app.name), self._context.repository.entry(app.name)
        if known is None or known.container_id != app.container_id:
            return None
        return None if entry is not None and entry.withdrawn_at is not None else known

    def _run(self, app: App, container: Container | None) -> Served | None:
        """Return the run of an app that serves, None if it does not."""
        entry = self._context.repository.entry(app.name)
        is_withdrawn = entry is not None and entry.withdrawn_at is not None
        if container is None or container.state != "running" or is_withdrawn:
            return None
        if container.health == "unhealthy":
            return None
        started_at = self._context.health.runs.started_at(app.name, container.id)
        if started_at is not None and self._is_ready(container, started_at):
            address = container.ports.get(app.http_port)
            return Served(container_id=container.id, started_at=started_at, address=address)
        known = self._known(app)
        is_same = known is not None and started_at in (None, known.started_at)
        return known if is_same else None

    def _is_ready(self, container: Container, started_at: float) -> bool:
        if container.health is not None:
            return container.health == "healthy"
        return self._context.clock() - started_at >= self._context.defaults.settle_seconds

    def _keep(self, served: dict[str, Served]) -> None:
        self._served = served
        kept = {name: run for name, run in served.items() if name not in self._unanswered}
        if kept == self._written:
            return
        self._written = kept
        try:
            # After a power failure, all containers have started anew.
            write_private(self._file, msgspec.json.encode(kept), durable=False)
        except OSError:  # such as on a full disk: without the file, apps are checked first
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def is_due(self) -> bool:
        """Return whether the container of an app is new, and was not inspected yet."""
        runs = self._context.health.runs
        return any(
            app.desired == "running" and runs.started_at(app.name, app.container_id) is None
            for app in self._context.repository.existing()
            if app.container_id is not None
        )

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Find out when further apps have run for long enough."""
        runs, now = self._context.health.runs, self._context.clock()
        starts = [
            runs.started_at(app.name, app.container_id)
            for app in self._context.repository.existing()
            if app.container_id in containers
        ]
        settle_seconds = self._context.defaults.settle_seconds
        settled_at = [start + settle_seconds for start in starts if start is not None]
        self._settled_at = [moment for moment in settled_at if moment > now]

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until an app has run for long enough, at most ``most``."""
        now = self._context.clock()
        return max(0.0, min([most, *(moment - now for moment in self._settled_at)]))

    def happened(self, event: ContainerEvent) -> None:
        """Withdraw the label of an app whose container has ended or started."""
        known = self._served.get(event.app)
        is_turn = event.action in ("die", "start")
        if is_turn and known is not None and known.container_id == event.container_id:
            self._keep({name: run for name, run in self._served.items() if name != event.app})

    def _check_without_engine(self, apps: Collection[App]) -> None:
        for app in apps:
            address, check = self._served[app.name].address, app.health
            if address is None or check is None or check.path is None:
                continue
            if app.name not in self._checks:
                work = self._check(app, check, address)
                self._checks[app.name] = asyncio.create_task(work, name=f"health of {app.name}")

    async def _check(self, app: App, check: HealthCheck, address: str) -> None:
        """Check an app at its intervals; it is taken for healthy until enough checks failed."""
        tally = Tally(check, Finding(health="healthy"), monotonic())
        while True:
            await asyncio.sleep(tally.pause(monotonic()))
            failure = await self._context.health.checker.http.failure(
                address, app.http_port, check.path or "/", seconds=check.timeout_seconds
            )
            before = self._unanswered.copy()
            tally.add(failure, monotonic())
            if tally.finding.health == "unhealthy":
                self._unanswered.add(app.name)
            else:
                self._unanswered.discard(app.name)
            if before != self._unanswered:
                self._context.on_change()

    def _end_checks(self) -> None:
        """Leave the checks to the engine, which is back; what does not answer must pass one."""
        for task in self._checks.values():
            task.cancel()
        self._checks.clear()
        self._served = {
            name: run for name, run in self._served.items() if name not in self._unanswered
        }
        self._unanswered.clear()

    async def close(self) -> None:
        """End all checks."""
        tasks = list(self._checks.values())
        self._end_checks()
        await asyncio.gather(*tasks, return_exceptions=True)
