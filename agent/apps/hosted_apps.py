"""What the roll call is told of the apps."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, EngineError, EngineTimeout
from agent.reporting.heartbeat import HostedApp, HostedApps

ANSWER_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 3.0


class ContainerLister(Protocol):
    """What lists the containers of apps by id."""

    def __call__(self, *, seconds: float | None = None) -> Awaitable[Mapping[str, Container]]:
        """Ask the engine, which has so many seconds, or its usual time; raises EngineError."""


class HostedAppsQuery:
    """What the roll call is told, without keeping it waiting.

    An engine that takes a question and never answers it, as a frozen one does, is waited for once.
    From then on it is asked in the background, and ``on_change`` is called when it answers.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        containers: ContainerLister,
        on_change: Callable[[], None],
        timeout_seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self._repository = repository
        self._containers = containers
        self._on_change = on_change
        self._timeout_seconds = timeout_seconds
        self._background_list: asyncio.Task[None] | None = None
        self._late_answer: Mapping[str, Container] | None = None

    async def hosted_apps(self, *, version: str | None) -> HostedApps:
        """Tell what is hosted here, by an engine of this version; never fails."""
        containers, self._late_answer = self._late_answer, None
        if containers is None and self._background_list is None:
            containers = await self._list_in_time()
        apps = tuple(
            HostedApp(
                name=app.name,
                http_port=app.http_port,
                labels=app.labels,
                running=_runs((containers or {}).get(app.container_id or "")),
            )
            for app in self._repository.existing()
        )
        state = "unreachable" if containers is None else "running"
        return HostedApps(apps=apps, docker_state=state, docker_version=version)

    async def _list_in_time(self) -> Mapping[str, Container] | None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._containers(seconds=self._timeout_seconds)
        except (TimeoutError, EngineTimeout):
            if self._background_list is None:
                self._background_list = asyncio.create_task(
                    self._list_in_background(), name="silent engine"
                )
        except EngineError:
            pass
        return None

    async def _list_in_background(self) -> None:
        try:
            while True:
                with suppress(EngineError):
                    self._late_answer = await self._containers()
                    break
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._background_list = None
        self._on_change()

    async def close(self) -> None:
        """Ask no more."""
        if self._background_list is not None:
            self._background_list.cancel()
            await asyncio.gather(self._background_list, return_exceptions=True)


def _runs(container: Container | None) -> bool:
    return container is not None and container.state == "running"
