"""Passwords are hashed one at a time, so that they leave time for everything else."""

import asyncio
import time
from pathlib import Path

from structlog.testing import LogCapture

from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

NAMES = [f"web-{number}" for number in range(4)]


async def test_the_first_password_does_not_wait_for_the_last_one(tmp_path: Path) -> None:
    engine, ended = FakeEngine(), list[float]()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for name in NAMES:
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.state.containers.clear()
        begun = time.monotonic()

        async def set_password(name: str) -> None:
            await apps.set_password(name, "correct horse battery", ASKER)
            ended.append(time.monotonic() - begun)

        await asyncio.gather(*map(set_password, NAMES))
        passwords = [app.password for app in await apps.queries.all()]

    assert passwords == ["pending"] * len(NAMES)
    assert ended[0] < ended[-1] / 2, ended
