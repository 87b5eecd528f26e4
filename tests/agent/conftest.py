"""What the tests of the agent share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.rig import Rig, rigged


@pytest.fixture
async def rig(tmp_path: Path, engine_url: str) -> AsyncIterator[Rig]:
    """Give an agent's apps over the real engine; the test's apps are deleted afterwards."""
    async with rigged(tmp_path, engine_url) as running:
        yield running
