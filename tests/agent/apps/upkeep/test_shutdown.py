"""An agent that is told to end in the middle of a change ends, and finishes it when it starts."""

import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.engine.docker.engine import DockerEngine
from agent.model import NewApp
from tests.support.agent.in_process import in_process_agent
from tests.support.agent.running_apps import ASKER, running_apps

pytestmark = pytest.mark.real


async def test_an_agent_that_ends_in_the_middle_of_a_change_does_not_hang(
    tmp_path: Path, engine_url: str, stubborn_image: str
) -> None:
    name = f"late-{secrets.token_hex(4)}"
    engine = DockerEngine(url=engine_url, timeout_seconds=30)
    async with running_apps(tmp_path, engine, LogCapture(), drain_seconds=0) as apps:
        await apps.create(NewApp(name=name, image=stubborn_image), ASKER)
        # This returns as soon as the stop is in the journal, a second before the app is killed.
        await apps.stop(name, replace(ASKER, respond_async=True))

    async with in_process_agent(tmp_path, engine_url) as again:
        again.used.append(name)
        await again.until(name, state="exited", desired="stopped", progress=None)
