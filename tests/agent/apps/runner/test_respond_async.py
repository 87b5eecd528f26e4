"""Operations in the background: the first answer is what the journal holds."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import InvalidApp
from agent.engine.errors import EngineUnavailable
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps

BACKGROUND = replace(ASKER, respond_async=True)


@pytest.mark.slow
async def test_a_change_that_resumes_a_creation_is_answered_when_it_has_begun_itself(
    tmp_path: Path,
) -> None:
    broke_off, resumed, may_go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def at_step(step: str) -> None:
        if step != "before create":
            return
        if not broke_off.is_set():
            broke_off.set()
            raise EngineUnavailable("the engine went away")
        resumed.set()
        await may_go_on.wait()

    defaults = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
    engine = FakeEngine(at_step=at_step)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=defaults) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), BACKGROUND)
        await broke_off.wait()
        rejected = AppChanges(cpu=1_000_000)
        change = asyncio.create_task(apps.update("web", rejected, BACKGROUND))
        await resumed.wait()
        may_go_on.set()
        with pytest.raises(InvalidApp):
            await change
