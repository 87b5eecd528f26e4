"""Records the engine's events of the containers of apps that the agent did not cause."""

import asyncio
from collections import deque

from agent.apps.host import Host
from agent.apps.upkeep.reconciler import ContainerObserver
from agent.engine.errors import EngineError
from agent.engine.models import ContainerEvent
from agent.state.database import StoreError
from agent.state.history import Event

ENGINE = "engine"
RECORDED = frozenset(
    {
        *("start", "die", "kill", "stop", "restart", "pause", "unpause", "destroy", "update"),
        *("oom", "health_status"),
    }
)
MAX_WAITING = 1000
PAUSE_SECONDS = 0.2


class EngineEvents(ContainerObserver):
    """Records events of the engine in groups, so that no operation has to wait."""

    def __init__(self, host: Host) -> None:
        self._context = host.context
        self._calls = host.containers.calls
        self._waiting = deque[Event](maxlen=MAX_WAITING)
        self._writer: asyncio.Task[None] | None = None

    def happened(self, event: ContainerEvent) -> None:
        """Record an event of the container that an app has now."""
        app = self._context.repository.find(event.app)
        if app is None or app.container_id != event.container_id or event.action not in RECORDED:
            return
        self._context.health.runs.happened(event)
        if self._calls.caused(event.container_id, event.action, event.time):
            return
        self._waiting.append(
            Event(
                time=event.time,
                app=event.app,
                by=ENGINE,
                actor="engine",
                action=event.action,
                message=event.detail,
                exit_code=event.exit_code,
            )
        )
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="engine's events")

    async def _write(self) -> None:
        while self._waiting:
            await self._write_waiting()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write_waiting(self) -> None:
        events = list(self._waiting)
        self._waiting.clear()
        try:
            await self._context.repository.store.record(events)
        except (StoreError, EngineError) as error:
            self._context.log.warning("events not recorded", events=len(events), reason=str(error))

    async def close(self) -> None:
        """Record what is left."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        if self._waiting:
            await self._write_waiting()
