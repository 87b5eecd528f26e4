"""What a list of apps costs the engine."""

import time
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.model import NewApp
from tests.support.agent.engines.counting_engine import CountingRealEngine
from tests.support.agent.running_apps import ASKER, running_apps

pytestmark = pytest.mark.real
LISTS = 5


async def test_a_list_is_one_call_however_many_apps_there_are(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    engine, stem = CountingRealEngine(engine_url), f"many-{time.time_ns():x}"
    async with running_apps(tmp_path, engine, LogCapture()) as apps:
        for number in range(3):
            await apps.create(NewApp(name=f"{stem}-{number}", image=busybox_image), ASKER)
        calls = []
        for _ in range(LISTS):
            before = engine.calls.copy()
            assert len(await apps.queries.all()) == 3
            calls.append(engine.calls - before)

        # The agent looks at its containers by itself, too, at times beside a list.
        assert {"containers": 1} in calls
        for number in range(3):
            await apps.delete(f"{stem}-{number}", ASKER)
