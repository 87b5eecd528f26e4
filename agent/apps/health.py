"""What is known of how healthy apps are, and the checks that find it out."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from agent.apps.errors import AppNotRunning
from agent.apps.run_history import Crashes, Runs
from agent.engine.engine import Engine
from agent.engine.errors import (
    CommandTimeout,
    EngineConflict,
    EngineRejected,
    ObjectNotFound,
)
from agent.engine.models import Container, Health
from agent.model import App, HealthCheck
from agent.probe import HttpProbe
from runtime.turns import Turns

C = TypeVar("C", bound=Container)
# Further checks wait. The wait does not count against their time limit.
MOST_CHECKS = 16
# Before the failures of a container count, the first pause between two checks of it.
FIRST_PAUSE_SECONDS = 1.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has found, and why the last one in a row failed."""

    health: Health = "starting"
    reason: str = ""


UNKNOWN = Finding()


class Findings:
    """What the checks of records have found, by the id of the container."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        # Why a container was unhealthy that was started again since, and was not healthy yet.
        self._unhealthy_before: dict[str, str] = {}

    def of(self, container_id: str) -> Finding:
        """Return what was found last; ``starting`` where nothing was."""
        return self._findings.get(container_id, UNKNOWN)

    def put(self, container_id: str, finding: Finding) -> None:
        """Remember a finding."""
        self._findings[container_id] = finding
        if finding.health == "healthy":
            self._unhealthy_before.pop(container_id, None)

    def begin_anew(self, container_id: str) -> None:
        """Forget what was found before a container was started again, but that it was unhealthy."""
        found = self._findings.pop(container_id, UNKNOWN)
        if found.health == "unhealthy":
            self._unhealthy_before[container_id] = found.reason

    def forget(self, container_id: str) -> None:
        """Forget all that was found of a container."""
        self._findings.pop(container_id, None)
        self._unhealthy_before.pop(container_id, None)

    def keep(self, container_ids: Collection[str]) -> None:
        """Forget all others."""
        self._findings = {
            each: found for each, found in self._findings.items() if each in container_ids
        }
        self._unhealthy_before = {
            each: why for each, why in self._unhealthy_before.items() if each in container_ids
        }

    def shown(self, app: App, container: C) -> C:
        """Return a container with what the check of its app has found, if the app has one.

        Otherwise its health is what the check of the image has found.
        """
        if app.health is None:
            return container
        health = self.of(container.id).health if container.state == "running" else None
        return msgspec.structs.replace(container, health=health)

    def why_unhealthy(self, app: App, container: Container | None) -> str | None:
        """Return why a running app is unhealthy, None if it is not, or has no check of its own.

        One that was unhealthy remains so over a restart, until a check has passed.
        """
        if app.health is None or container is None or container.state != "running":
            return None
        found = self.of(container.id)
        if found.health == "unhealthy":
            return found.reason
        return self._unhealthy_before.get(container.id)


@dataclass(frozen=True)
class CheckFailure:
    """Why a check failed; it always does if its command ``cannot_run``."""

    reason: str
    cannot_run: bool = False


class HealthChecker:
    """Carries out the checks of apps, a bounded number at the same time.

    ``holders`` returns the keys that an app belongs to. The apps of one have their share of these
    checks at most, so that slow ones do not hold up those of other apps.
    """

    def __init__(self, engine: Engine, holders: Callable[[str], str] = lambda _: "") -> None:
        self._engine = engine
        self._holders = holders
        self.http = HttpProbe()
        self._turns = Turns(MOST_CHECKS)

    async def failure(
        self, app: App, check: HealthCheck, container: Container
    ) -> CheckFailure | None:
        """Return why an app in this container fails the check, None if it passes.

        Raises:
            AppNotRunning: it does not run, or is paused, so that the check has no result.
            EngineUnavailable: the engine cannot be asked.

        """
        async with self._turns.turn(self._holders(app.name)):
            try:
                found = await self._failure(app, check, container)
                if found is None or (await self._engine.inspect(container.id)).state == "running":
                    return found
            except (EngineConflict, ObjectNotFound) as error:
                raise AppNotRunning(f"app `{app.name}` does not run") from error
        raise AppNotRunning(f"app `{app.name}` does not run")

    async def _failure(
        self, app: App, check: HealthCheck, container: Container
    ) -> CheckFailure | None:
        if check.path is None:
            return await self._command_failure(check, container)
        failure = await self._http_failure(app.http_port, check.path, check, container)
        return CheckFailure(failure) if failure is not None else None

    async def _http_failure(
        self, port: int, path: str, check: HealthCheck, container: Container
    ) -> str | None:
        # A container that was disconnected from its network has lost its ports, and another program
        # may have them by now. So the ports in the list may be wrong.
        address = (await self._engine.inspect(container.id)).ports.get(port)
        if address is None:
            return f"the container engine does not publish port {port}"
        return await self.http.failure(address, port, path, seconds=check.timeout_seconds)

    async def _command_failure(
        self, check: HealthCheck, container: Container
    ) -> CheckFailure | None:
        seconds = check.timeout_seconds
        try:
            ended = await self._engine.execute(
                container.id, list(check.command or ()), as_root=False, seconds=seconds
            )
        except CommandTimeout:
            return CheckFailure(f"the command did not end within {seconds} s")
        except (EngineConflict, ObjectNotFound):
            raise
        except EngineRejected as error:
            return CheckFailure(f"the command cannot be run: {error}")
        if ended.failure is None:
            return None
        reason = f"the command ended with {ended.failure}"
        return CheckFailure(reason, cannot_run=ended.cannot_run)


class Tally:
    """Counts the failures in a row of one check, from the start of a container on.

    Failures in the first ``start_seconds``, at least one interval, do not count, unless the app was
    healthy before. Meanwhile the check is repeated sooner, after 1 s, 2 s, 4 s and so on.
    """

    def __init__(self, check: HealthCheck, finding: Finding, now: float) -> None:
        self._check = check
        self._counts_from = now + max(check.start_seconds, check.interval_seconds)
        self._early_pause = FIRST_PAUSE_SECONDS
        self._failures = 0
        self.finding = finding

    def pause(self, now: float) -> float:
        """Return the seconds until the next check."""
        interval = float(self._check.interval_seconds)
        if self._counts(now):
            return interval
        pause, self._early_pause = self._early_pause, 2 * self._early_pause
        return min(pause, interval)

    def add(self, failure: str | None, now: float) -> None:
        """Count a check that passed (None) or failed."""
        if failure is None:
            self._failures = 0
            self.finding = Finding(health="healthy")
        elif self._counts(now):
            self._failures += 1
            if self._failures >= self._check.retries:
                self.finding = Finding(health="unhealthy", reason=failure)

    def _counts(self, now: float) -> bool:
        return self.finding.health != "starting" or now >= self._counts_from


@dataclass(frozen=True, kw_only=True)
class AppHealth:
    """The checks of apps and what they found, the crashes and the runs of apps."""

    checker: HealthChecker
    findings: Findings
    crashes: Crashes
    runs: Runs
