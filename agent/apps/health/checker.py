"""Carries out the checks of apps."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.apps.errors import AppNotRunning
from agent.engine.errors import (
    CommandTimeout,
    EngineConflict,
    EngineRefused,
    ObjectNotFound,
)
from agent.engine.models import Container
from agent.engine.protocol import Engine
from agent.model import App, HealthCheck
from agent.probe import HttpProbe
from runtime.turns import Turns

# Further checks wait. The wait does not count against their time limit.
MOST_CHECKS = 16


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
            AppNotRunning: it does not run, or is paused, so that the check says nothing.
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
        # may have them by now. So the list in which it was found says nothing of them.
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
        except EngineRefused as error:
            return CheckFailure(f"the command cannot be run: {error}")
        if ended.failure is None:
            return None
        reason = f"the command ended with {ended.failure}"
        return CheckFailure(reason, cannot_run=ended.cannot_run)
