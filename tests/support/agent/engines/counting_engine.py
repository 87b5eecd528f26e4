"""An engine that counts what is asked of it."""

import asyncio
from collections import Counter

from agent.engine.models import Container, InspectedContainer, Process, Sample
from agent.engine.protocol import Engine
from tests.support.agent.engines.wrapped_engine import WrappedEngine


class CountingEngine(WrappedEngine):
    """Counts the reads of containers in ``calls``; each takes so many ``seconds`` longer."""

    def __init__(self, engine: Engine | str, *, seconds: float = 0) -> None:
        super().__init__(engine)
        self.calls = Counter[str]()
        self._seconds = seconds

    async def _count(self, call: str) -> None:
        self.calls[call] += 1
        if self._seconds:
            await asyncio.sleep(self._seconds)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        await self._count("containers")
        return await super().containers(label=label, seconds=seconds)

    async def inspect(self, container_id: str) -> InspectedContainer:
        await self._count("inspect")
        return await super().inspect(container_id)

    async def processes(self, container_id: str) -> list[Process]:
        await self._count("processes")
        return await super().processes(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        await self._count("sample")
        return await super().sample(container_id, priority=priority)
