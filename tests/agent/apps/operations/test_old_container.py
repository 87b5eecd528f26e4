"""What an app shows of starts that failed."""

from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import StartFailed
from agent.engine.errors import EngineRejected
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps


async def test_why_the_old_container_did_not_start_is_forgotten_once_it_runs(
    tmp_path: Path,
) -> None:
    engine, failures = FakeEngine(), iter(["the new one fails", "the old one fails"])

    async def fail(step: str) -> None:
        if step == "before start" and (reason := next(failures, None)):
            raise EngineRejected(reason)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = fail
        with pytest.raises(StartFailed, match="the new one fails"):
            await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        down = await apps.queries.one("web")
        assert down.container_id is not None
        await engine.start(down.container_id)
        up = await apps.queries.one("web")

    assert "the old one fails" in str(down.message)
    assert "the new one fails" in str(up.message)
    assert "the old one" not in str(up.message)
