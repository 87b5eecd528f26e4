"""An engine that counts what is asked of it."""

import asyncio
from collections import Counter

from agent.engine.engine import Engine
from agent.engine.models import Container, InspectedContainer, Process, Sample
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.real_engine import RealEngine


class Counting(Engine):
    """Counts the reads of containers in ``calls``; each takes so many ``seconds`` longer."""

    calls: Counter[str]
    seconds: float = 0

    async def _count(self, call: str) -> None:
        self.calls[call] += 1
        if self.seconds:
            await asyncio.sleep(self.seconds)

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


class CountingEngine(Counting, FakeEngine):
    """An engine of a test that counts."""

    def __init__(self, *, seconds: float = 0) -> None:
        FakeEngine.__init__(self)
        self.calls, self.seconds = Counter[str](), seconds


class CountingRealEngine(Counting, RealEngine):
    """A real engine that counts."""

    def __init__(self, url: str) -> None:
        RealEngine.__init__(self, url)
        self.calls = Counter[str]()
