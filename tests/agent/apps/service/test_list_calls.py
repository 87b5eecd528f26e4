"""What a list of apps costs the engine."""

import time
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.model import NewApp
from tests.support.agent.engines.counting_engine import CountingEngine
from tests.support.agent.running_apps import ASKER, running_apps

pytestmark = pytest.mark.real


async def test_a_list_is_one_call_however_many_apps_there_are(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, stem = CountingEngine(engine_url), f"many-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, LogCapture()) as apps:
        for number in range(3):
            await apps.create(NewApp(name=f"{stem}-{number}", image=busybox_image), ASKER)
        before = engine.calls.copy()

        records = await apps.all()

        assert len(records) == 3
        assert engine.calls - before == {"containers": 1}
        for record in records:
            await apps.delete(record.name, ASKER)
