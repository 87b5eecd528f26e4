"""A host that has become smaller than its apps, as after a restore on another machine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import InvalidApp
from agent.engine.models import EngineInfo
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps


class ShrinkingEngine(FakeEngine):
    """An engine whose host may have one core and 1024 MiB."""

    is_small = False

    async def info(self) -> EngineInfo:
        host = await super().info()
        return replace(host, cpus=1, memory=1024) if self.is_small else host


@pytest.mark.slow
async def test_only_limits_that_are_changed_must_fit(tmp_path: Path) -> None:
    engine = ShrinkingEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, cpu=400, memory=4096), ASKER)
        engine.is_small = True

        accepted: list[dict[str, Any]] = [
            {"description": "the shop"},
            {"health": HealthCheck(command=("true",))},
            {"env": {"A": "b"}},
        ]
        for fields in accepted:
            await apps.update("web", AppChanges(**fields), ASKER)
        for larger in (AppChanges(memory=2048), AppChanges(cpu=200)):
            with pytest.raises(InvalidApp, match="are possible here"):
                await apps.update("web", larger, ASKER)
        smaller = await apps.update("web", AppChanges(memory=512), ASKER)

        assert (smaller.cpu, smaller.memory) == (400, 512)
        assert (smaller.description, smaller.env) == ("the shop", {"A": "b"})
