"""What the roll call is told of the apps."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from agent.apps.roster import Roster
from agent.containers import Container, EngineError, EngineTimeout
from agent.host import HostedApp, Hosting

PATIENCE_SECONDS = 5.0
PAUSE_SECONDS = 3.0


class Listing(Protocol):
    """What lists the containers of apps by id."""

    def __call__(self, *, seconds: float | None = None) -> Awaitable[Mapping[str, Container]]:
        """Ask the engine, which has so many seconds, or its usual time; raises EngineError."""


class Telling:
    """What the roll call is told, without keeping it waiting.

    An engine that takes a question and never answers it, as a frozen one does, is waited for once.
    From then on it is asked in the background, and ``on_change`` is called when it answers.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        containers: Listing,
        on_change: Callable[[], None],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._roster = roster
        self._containers = containers
        self._on_change = on_change
        self._patience_seconds = patience_seconds
        self._asking: asyncio.Task[None] | None = None
        self._late: Mapping[str, Container] | None = None

    async def hosting(self, *, version: str | None) -> Hosting:
        """Tell what is hosted here, by an engine of this version; never fails."""
        containers, self._late = self._late, None
        if containers is None and self._asking is None:
            containers = await self._look()
        apps = tuple(
            HostedApp(
                name=app.name,
                http_port=app.http_port,
                labels=app.labels,
                running=_runs((containers or {}).get(app.container_id or "")),
            )
            for app in self._roster.existing()
        )
        state = "unreachable" if containers is None else "running"
        return Hosting(apps=apps, docker_state=state, docker_version=version)

    async def _look(self) -> Mapping[str, Container] | None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await self._containers(seconds=self._patience_seconds)
        except (TimeoutError, EngineTimeout):
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask(), name="silent engine")
        except EngineError:
            pass
        return None

    async def _ask(self) -> None:
        try:
            while True:
                with suppress(EngineError):
                    self._late = await self._containers()
                    break
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._asking = None
        self._on_change()

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def _runs(container: Container | None) -> bool:
    return container is not None and container.state == "running"
