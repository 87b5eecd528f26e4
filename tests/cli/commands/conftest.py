import pytest

from tests.support.cli.fake_agent import FakeAgent, StartAgent
from tests.support.registry.in_process import InProcessRegistry


@pytest.fixture
async def agent(registry: InProcessRegistry, fake_agent: StartAgent) -> FakeAgent:
    """Return the agent of web-1."""
    running = await fake_agent()
    await registry.post("web-1", kv={"agent.url": running.url})
    return running
