"""Waiting for a condition in a coroutine."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from dev.waiting import pause_after


async def async_until(holds: Callable[[], Awaitable[bool]], within: float = 120) -> None:
    """Wait until something holds."""
    began = time.monotonic()
    looked = began
    while not await holds():
        now = time.monotonic()
        assert now - began < within, "it never came to that"
        await asyncio.sleep(pause_after(now - began, now - looked))
        looked = time.monotonic()
