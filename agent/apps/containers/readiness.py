"""Waits until a container that was started has stayed up and got healthy."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime
from enum import Enum, auto

from agent.apps.context import AgentContext
from agent.apps.errors import AppNotRunning, StartFailed
from agent.apps.health import CheckFailure, Finding
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.engine.models import InspectedContainer
from agent.model import App, HealthCheck

LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 2048
POLL_SECONDS = 0.1
SLOW_POLL_SECONDS = 0.5
EXIT_WAIT_SECONDS = 3.0
START_SECONDS = 1.0
STABLE_STATES = frozenset({"running", "paused"})
# The programs of these also run on a host with the other CPU.
RUN_THERE = frozenset({("386", "amd64"), ("arm", "arm64")})


class Requirement(Enum):
    """What a container that was started must show."""

    START = auto()
    """It stays up for a second."""
    REPLACEMENT = auto()
    """It stays up for ``settle_seconds``, and is healthy if there is a check."""
    REPLACEMENT_OF_UNHEALTHY = auto()
    """The same, but the check of its image does not count, only that of its record."""


class Readiness:
    """Waits until a container has settled.

    One that stays up may take ``healthy_seconds`` to get healthy, and as long as its check needs.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    async def wait(
        self,
        app: App,
        container_id: str,
        *,
        restarts: int,
        requirement: Requirement,
        overdue: Callable[[], None],
    ) -> None:
        """Wait until the app's container has settled; it has been restarted ``restarts`` times.

        ``overdue`` is called again and again after ``healthy_seconds``, and ends the wait if it
        raises.

        Raises:
            StartFailed: it does not stay up, or does not get healthy; with its last lines.

        """
        began = time.monotonic()
        seconds = self._context.defaults.settle_seconds
        if requirement is Requirement.START:
            seconds = min(seconds, START_SECONDS)
        while True:
            container = await self._context.engine.inspect(container_id)
            if container.state not in STABLE_STATES or container.restarts > restarts:
                raise await self._failure(app, container)
            elapsed = time.monotonic() - began
            if elapsed >= seconds and await self._is_healthy(app, container, requirement, elapsed):
                return
            if elapsed >= max(seconds, self._context.defaults.healthy_seconds):
                overdue()
            await asyncio.sleep(POLL_SECONDS if elapsed < seconds else SLOW_POLL_SECONDS)

    async def _is_healthy(
        self, app: App, container: InspectedContainer, requirement: Requirement, elapsed: float
    ) -> bool:
        """Return whether it is healthy if it has to be; StartFailed when its time is over."""
        if requirement is Requirement.START:
            return True
        needed = decided = 0.0
        if app.health is not None:
            failure = await self._own_failure(app, app.health, container)
            needed, decided = app.health.seconds, app.health.seconds_without_program
        elif requirement is Requirement.REPLACEMENT and container.health_seconds is not None:
            failure = _image_failure(container)
            if container.health != "unhealthy":  # the engine reports that after the last retry
                needed = decided = container.health_seconds
        else:
            return True
        if failure is None:
            return True
        longest = (
            decided if failure.cannot_run else max(self._context.defaults.healthy_seconds, needed)
        )
        if elapsed >= longest:
            raise StartFailed(
                f"app `{app.name}` does not get healthy within {elapsed:.0f} s: {failure.reason};"
                " change the app or its check",
                output=await self._last_lines(container.id),
            )
        return False

    async def _own_failure(
        self, app: App, check: HealthCheck, container: InspectedContainer
    ) -> CheckFailure | None:
        try:
            failure = await self._context.health.checker.failure(app, check, container)
        except AppNotRunning as error:
            return CheckFailure(str(error))
        if failure is None:
            self._context.health.findings.put(container.id, Finding(health="healthy"))
        return failure

    async def _failure(self, app: App, container: InspectedContainer) -> StartFailed:
        ended = await self._wait_for_exit_code(container)
        reason = f"app `{app.name}` does not stay up: it ended with exit code {ended.exit_code}"
        if ended.oom_killed:
            reason += f", for want of memory (it has {app.memory} MiB); give it more"
        else:
            other = await wrong_cpu(self._context.engine, ended.image_id)
            reason += f"; {other or 'change its `image`, `command` or `env`'}"
        output = await self._last_lines_of_run(ended)
        return StartFailed(reason, output=output, exit_code=ended.exit_code)

    async def _wait_for_exit_code(self, container: InspectedContainer) -> InspectedContainer:
        # While the engine has it started once more, there is no exit code.
        deadline = time.monotonic() + EXIT_WAIT_SECONDS
        while container.exit_code is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS / 2)
            container = await self._context.engine.inspect(container.id)
        return container

    async def _last_lines_of_run(self, ended: InspectedContainer) -> str:
        """Return the last lines of a run, and none of the next one.

        The engine may have started the container again before its log is read.
        """
        output = await self._last_lines(ended.id)
        with suppress(EngineError):
            started_at = (await self._context.engine.inspect(ended.id)).started_at
            if ended.finished_at is not None and started_at is not None:
                end, start = map(datetime.fromisoformat, (ended.finished_at, started_at))
                if start > end:
                    # The engine notes lines a moment after they are written, and a start after it.
                    between = end + (start - end) / 2
                    output = await self._last_lines(ended.id, until=between.timestamp())
        return output

    async def _last_lines(self, container_id: str, *, until: float | None = None) -> str:
        kept = b""
        # The engine counts lines before it leaves out those that are later.
        tail = LOG_TAIL_LINES if until is None else None
        logs = self._context.engine.logs(
            container_id, tail=tail, since=None, until=until, follow=False
        )
        with suppress(EngineError):
            async with aclosing(logs):
                async for chunk in logs:
                    kept = (kept + chunk)[-LOG_TAIL_BYTES - 1 :]
        if len(kept) > LOG_TAIL_BYTES:
            # A line that is cut off says nothing, if others are left.
            kept = kept.partition(b"\n")[2] or kept[1:]
        return kept.decode("utf-8", "replace").strip()


def _image_failure(container: InspectedContainer) -> CheckFailure | None:
    if container.health == "healthy":
        return None
    reason, last = f"the HEALTHCHECK of its image says {container.health}", container.last_check
    if last is None or last.failure is None:
        return CheckFailure(reason)
    return CheckFailure(f"{reason} ({last.failure})", cannot_run=last.cannot_run)


async def wrong_cpu(engine: Engine, image_id: str) -> str | None:
    """Return that an image was built for another CPU, and what helps; None if it was not.

    A host may run such programs all the same, by emulation. So this explains a failure, and causes
    none.
    """
    with suppress(EngineError):
        image, host = await engine.image(image_id), (await engine.info()).architecture
        built_for = image.architecture if image is not None else ""
        if built_for and host and built_for != host and (built_for, host) not in RUN_THERE:
            return (
                f"its image is built for the CPU {built_for}; use one for {host}, this host's CPU"
            )
    return None
