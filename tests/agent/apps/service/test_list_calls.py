"""What a list of apps costs the engine."""

import time
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.models import Container, InspectedContainer
from agent.model import NewApp
from tests.support.agent.engines.wrapped_engine import WrappedEngine
from tests.support.agent.running_apps import ASKER, running_apps

pytestmark = pytest.mark.real


class CountingEngine(WrappedEngine):
    """A real engine that counts what is asked of it about containers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lists = self.looks = 0

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        self.lists += 1
        return await super().containers(label=label, seconds=seconds)

    async def inspect(self, container_id: str) -> InspectedContainer:
        self.looks += 1
        return await super().inspect(container_id)


async def test_a_list_is_one_call_however_many_apps_there_are(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, stem = CountingEngine(engine_url), f"many-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, LogCapture()) as apps:
        for number in range(3):
            await apps.create(NewApp(name=f"{stem}-{number}", image=busybox_image), ASKER)
        before = engine.lists, engine.looks

        records = await apps.all()

        assert len(records) == 3
        assert (engine.lists, engine.looks) == (before[0] + 1, before[1])
        for record in records:
            await apps.delete(record.name, ASKER)
