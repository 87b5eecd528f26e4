from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.state.database import AgentDatabase


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AgentDatabase]:
    """Yield an open database in the folder of the test, which may close it."""
    store = AgentDatabase(tmp_path / "agent.db")
    await store.open()
    yield store
    with suppress(RuntimeError):  # the test has closed it
        await store.close()
