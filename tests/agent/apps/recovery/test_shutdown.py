"""An agent that is told to end in the middle of a change ends, and finishes it when it starts."""

import secrets
import time
from pathlib import Path

import pytest
import structlog

from agent.apps import Apps, NewApp, Requester
from agent.engine import DockerEngine
from agent.state.store import Store
from tests.support.agent.in_process import DEFAULTS, in_process_agent, without_adoption

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

ASKER = Requester(name="operator")


async def test_an_agent_that_ends_in_the_middle_of_a_change_does_not_hang(
    tmp_path: Path, engine_url: str, stubborn_image: str
) -> None:
    name = f"late-{secrets.token_hex(4)}"
    await without_adoption(tmp_path)
    apps = Apps(
        store=Store(tmp_path / "agent.db"),
        engine=DockerEngine(url=engine_url, timeout_seconds=30),
        defaults=DEFAULTS,
        log=structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]),
        on_change=lambda: None,
        clock=time.time,
    )
    await apps.open()
    await apps.create(NewApp(name=name, image=stubborn_image), ASKER)
    # This comes back as soon as the stop is written down, a second before the app is killed.
    await apps.stop(name, Requester(name="operator", respond_async=True))

    await apps.close(0)

    async with in_process_agent(tmp_path, engine_url) as again:
        again.used.append(name)
        await again.until(name, state="exited", desired="stopped", progress=None)
