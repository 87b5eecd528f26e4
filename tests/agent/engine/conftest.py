"""An engine that answers what a test wants, and ours that asks it."""

from collections.abc import AsyncIterator

import pytest

from agent.engine.engine import Engine
from tests.support.agent.engines.fake_docker_api import FakeDockerApi, fake_docker_api


@pytest.fixture
async def fake() -> AsyncIterator[FakeDockerApi]:
    """Run a fake engine."""
    async with fake_docker_api() as api:
        yield api


@pytest.fixture
async def engine(fake: FakeDockerApi) -> AsyncIterator[Engine]:
    """Yield ours, which asks the fake one."""
    engine = Engine(url=fake.url, timeout_seconds=30)
    yield engine
    await engine.close()
