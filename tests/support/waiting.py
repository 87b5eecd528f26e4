"""Waiting for a condition in a coroutine."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from dev.waiting import pause_after


async def async_until(holds: Callable[[], Awaitable[bool]], within: float = 120) -> None:
    """Wait until something holds."""
    began = time.monotonic()
    while not await holds():
        waited = time.monotonic() - began
        assert waited < within, "it never came to that"
        await asyncio.sleep(pause_after(waited))
