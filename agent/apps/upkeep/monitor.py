"""Checks apps at their intervals, and counts failures."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from agent.apps.context import AgentContext
from agent.apps.errors import AppNotFound, AppNotRunning
from agent.apps.health import Finding, Tally
from agent.apps.upkeep.reconciler import ContainerObserver
from agent.engine.errors import EngineError
from agent.engine.models import Container, ContainerEvent
from agent.model import App, HealthCheck

# After these events, earlier findings do not count.
NEW_BEGINNINGS = frozenset({"start", "die", "pause", "unpause"})


@dataclass(frozen=True)
class _Checked:
    """What is checked: a container, with the check of its app."""

    container_id: str
    check: HealthCheck


class HealthMonitor(ContainerObserver):
    """Checks the apps that run and whose records ask for it. Each has a task, which mostly waits.

    Nothing is checked while an app is paused or down.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._tasks: dict[_Checked, asyncio.Task[None]] = {}
        self._observed: set[_Checked] = set()
        # Called when an app has become healthy or unhealthy.
        self.listeners: list[Callable[[], None]] = []

    def is_due(self) -> bool:
        """Return whether an app has another check or another container than was observed."""
        return self._wanted().keys() != self._observed

    def _wanted(self) -> dict[_Checked, App]:
        return {
            _Checked(app.container_id, app.health): app
            for app in self._context.repository.existing()
            if app.health is not None and app.container_id is not None
        }

    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Check the apps that run from now on, and no others."""
        wanted = self._wanted()
        self._observed = set(wanted)
        self._context.health.findings.keep(containers)
        running = {
            checked: app
            for checked, app in wanted.items()
            if checked.container_id in containers
            and containers[checked.container_id].state == "running"
        }
        for checked in self._tasks.keys() - running.keys():
            self._end(checked)
            if checked not in wanted:  # findings of a former check do not count for the next one
                self._context.health.findings.forget(checked.container_id)
        for checked in running.keys() - self._tasks.keys():
            self._begin(running[checked].name, checked, containers[checked.container_id])
        self._context.counters.unhealthy.set(self._count_unhealthy(containers))

    def _count_unhealthy(self, containers: Mapping[str, Container]) -> int:
        pairs = (
            (app, containers.get(app.container_id or ""))
            for app in self._context.repository.existing()
        )
        return sum(
            self._context.health.findings.shown(app, container).health == "unhealthy"
            or self._context.health.findings.why_unhealthy(app, container) is not None
            for app, container in pairs
            if container is not None
        )

    def happened(self, event: ContainerEvent) -> None:
        """Begin anew with a container that was started, paused or the like."""
        if event.action in NEW_BEGINNINGS:
            self._context.health.findings.begin_anew(event.container_id)
            for checked in list(self._tasks):
                if checked.container_id == event.container_id:
                    self._end(checked)

    def engine_gone(self) -> None:
        """Begin anew with all containers: the engine may start them before it sends events."""
        self._context.health.findings.keep(())
        for checked in list(self._tasks):
            self._end(checked)

    def _begin(self, name: str, checked: _Checked, container: Container) -> None:
        self._tasks[checked] = asyncio.create_task(
            self._check_at_intervals(name, checked, container), name=f"health of {name}"
        )

    def _end(self, checked: _Checked) -> None:
        self._tasks.pop(checked).cancel()

    async def _check_at_intervals(self, name: str, checked: _Checked, container: Container) -> None:
        tally = Tally(
            checked.check, self._context.health.findings.of(checked.container_id), monotonic()
        )
        while True:
            await asyncio.sleep(tally.pause(monotonic()))
            try:
                app = self._context.repository.get(name)
                failure = await self._context.health.checker.failure(app, checked.check, container)
            except (AppNotFound, AppNotRunning, EngineError):
                continue  # there is nothing to count
            before = tally.finding
            tally.add(failure.reason if failure is not None else None, monotonic())
            self._context.health.findings.put(checked.container_id, tally.finding)
            if tally.finding.health != before.health:
                self._tell(name, before, tally.finding)

    def _tell(self, name: str, before: Finding, finding: Finding) -> None:
        if finding.health == "unhealthy":
            self._context.counters.turned_unhealthy.inc()
            self._context.log.warning("app is unhealthy", app=name, reason=finding.reason)
        elif before.health == "unhealthy":
            self._context.log.info("app is healthy again", app=name)
        for listener in self.listeners:
            listener()

    async def close(self) -> None:
        """End all checks."""
        tasks = list(self._tasks.values())
        for checked in list(self._tasks):
            self._end(checked)
        await asyncio.gather(*tasks, return_exceptions=True)
