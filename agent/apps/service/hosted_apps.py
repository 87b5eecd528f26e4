"""The apps for the heartbeat."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from agent.apps.context import AgentContext
from agent.apps.records import hosted
from agent.apps.upkeep.serving import Serving
from agent.apps.upkeep.watcher import EngineState
from agent.engine.errors import EngineError, EngineTimeout
from agent.engine.models import Container
from agent.reporting.heartbeat import HostedApps

ANSWER_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 3.0


# Returns the containers of apps by id; EngineError after so many seconds, None: the engine's limit.
ListContainers: TypeAlias = Callable[[float | None], Awaitable[Mapping[str, Container]]]


class HostedAppsQuery:
    """The apps for the heartbeat, which never waits for the engine for long.

    If the engine does not answer in time, it is asked in the background from then on. Its answer is
    a change.
    """

    def __init__(
        self,
        context: AgentContext,
        containers: ListContainers,
        engine: EngineState,
        serving: Serving,
    ) -> None:
        self._context = context
        self._containers = containers
        self._engine = engine
        self._serving = serving
        self._background_list: asyncio.Task[None] | None = None
        self._late_answer: Mapping[str, Container] | None = None

    @property
    def problem(self) -> str | None:
        """Why the engine cannot be asked, None if it can."""
        if self._background_list is not None:
            return "the container engine does not answer in time"
        return self._engine.problem

    async def hosted_apps(self, within_seconds: float | None = None) -> HostedApps:
        """Return the apps and the state of the engine; never fail.

        Wait for the engine for 5 s at most, and for ``within_seconds`` if that is less.
        """
        containers, self._late_answer = self._late_answer, None
        if containers is None and self._background_list is None:
            limits = (ANSWER_TIMEOUT_SECONDS, within_seconds)
            containers = await self._list_in_time(min(each for each in limits if each is not None))
        found = containers or {}
        existing = self._context.repository.existing()
        serving = self._serving.names(existing, containers)
        apps = tuple(
            hosted(self._context, app, found.get(app.container_id or ""), serving)
            for app in existing
        )
        state = "unreachable" if containers is None else "running"
        return HostedApps(
            apps=apps,
            docker_state=state,
            docker_version=self._engine.version,
            docker_problem=self.problem if containers is None else None,
        )

    async def _list_in_time(self, seconds: float) -> Mapping[str, Container] | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._containers(seconds)
        except (TimeoutError, EngineTimeout):
            if self._background_list is None:
                self._background_list = asyncio.create_task(
                    self._list_in_background(), name="engine does not answer"
                )
        except EngineError:
            pass
        return None

    async def _list_in_background(self) -> None:
        try:
            while True:
                with suppress(EngineError):
                    self._late_answer = await self._containers(None)
                    break
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._background_list = None
        self._context.on_change()

    async def close(self) -> None:
        """Stop asking in the background."""
        if self._background_list is not None:
            self._background_list.cancel()
            await asyncio.gather(self._background_list, return_exceptions=True)
