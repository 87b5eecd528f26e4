from collections.abc import AsyncIterator

import pytest

from tests.support.cli.fake_agent import FakeAgent, fake_agent
from tests.support.registry.in_process import InProcessRegistry


@pytest.fixture
async def agent(registry: InProcessRegistry) -> AsyncIterator[FakeAgent]:
    """Yield the agent of web-1."""
    async with fake_agent() as running:
        await registry.post("web-1", kv={"agent.url": running.url})
        yield running
