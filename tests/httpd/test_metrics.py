"""How late the event loop is, as /metrics shows it."""

import asyncio

from prometheus_client import CollectorRegistry
from structlog import get_logger

from httpd.metrics import measuring_loop
from tests.support.machine.clocks import in_virtual_time


def shown(metrics: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return a value of the histogram."""
    return metrics.get_sample_value(f"rollcall_loop_delay_seconds_{name}", labels)


@in_virtual_time
async def test_a_late_loop_is_seen_and_one_in_time_is_not() -> None:
    metrics, late = CollectorRegistry(), [0.0, 0.3, 0.0]

    async def sleep(seconds: float) -> None:
        if not late:
            await asyncio.Event().wait()
        await asyncio.sleep(seconds + late.pop(0))

    async with measuring_loop(metrics, get_logger(), sleep=sleep):
        await asyncio.sleep(10)

    assert shown(metrics, "count") == 3
    assert shown(metrics, "bucket", le="0.001") == 2
    assert shown(metrics, "bucket", le="0.25") == 2
    assert shown(metrics, "bucket", le="0.5") == 3


@in_virtual_time
async def test_it_is_measured_while_it_is_open() -> None:
    metrics = CollectorRegistry()

    async with measuring_loop(metrics, get_logger()):
        await asyncio.sleep(10.1)
    await asyncio.sleep(10)

    assert shown(metrics, "count") == 20
