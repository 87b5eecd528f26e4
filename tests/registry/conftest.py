"""What the registry's tests share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.registry.service import Service, serving


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    """Give a registry of its own to each test."""
    async with serving() as running:
        yield running
