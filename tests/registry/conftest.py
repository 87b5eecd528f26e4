"""What the registry's tests share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.registry.in_process import InProcessRegistry, in_process_registry


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry of its own to each test."""
    async with in_process_registry() as running:
        yield running
