"""How late the event loop is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from prometheus_client import CollectorRegistry, Histogram

INTERVAL_SECONDS = 0.5
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@asynccontextmanager
async def measuring_loop(
    metrics: CollectorRegistry, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[None]:
    """Measure while the context is open how much too late the loop wakes a sleeper."""
    delays = Histogram(
        "rollcall_loop_delay_seconds",
        "How late the event loop does what is due, twice a second.",
        buckets=SECONDS,
        registry=metrics,
    )
    task = asyncio.create_task(_measure(delays, sleep), name="delay of the loop")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _measure(delays: Histogram, sleep: Callable[[float], Awaitable[None]]) -> None:
    time = asyncio.get_running_loop().time
    while True:
        due = time() + INTERVAL_SECONDS
        await sleep(INTERVAL_SECONDS)
        delays.observe(max(0.0, time() - due))
