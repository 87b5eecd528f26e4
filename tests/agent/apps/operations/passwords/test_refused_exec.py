"""An engine that refuses to run a program in an app, as one whose disk is full may."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import EngineRefused
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.waiting import async_until

REASON = "OCI runtime exec failed: no space left on device"


async def refuse_exec(step: str) -> None:
    if step == "before execute":
        raise EngineRefused(REASON)


@pytest.mark.slow
async def test_a_password_that_the_engine_refuses_to_set_leaves_the_app_as_it_was(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = refuse_exec

        with pytest.raises(EngineRefused, match=REASON):
            await apps.set_password("web", "correct horse battery", ASKER)

        after = await apps.get("web")
        assert (after.progress, after.password) == (None, None)
        assert (await apps.stop("web", ASKER)).state == "exited"


@pytest.mark.slow
async def test_in_the_background_the_record_has_the_reason(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = refuse_exec

        background = replace(ASKER, respond_async=True)
        await apps.set_password("web", "correct horse battery", background)

        async def told() -> bool:
            after = await apps.get("web")
            return (after.progress, after.message) == (None, REASON)

        await async_until(told)
