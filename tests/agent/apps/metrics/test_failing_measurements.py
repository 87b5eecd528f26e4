"""Measurements that hang or fail: what else is measured, and what /metrics says meanwhile."""

from pathlib import Path

import pytest

from agent.model import NewApp
from tests.support.agent.apps.measured_apps import MeasuredEngine, measured
from tests.support.agent.engines.fake_engine import IMAGE
from tests.support.agent.running_apps import ASKER
from tests.support.waiting import async_until


@pytest.mark.slow
async def test_an_app_that_cannot_be_measured_keeps_no_other_from_its_figures(
    tmp_path: Path,
) -> None:
    engine = MeasuredEngine()
    engine.hanging = "app-0"
    async with measured(tmp_path, engine) as (apps, metrics):
        for number in range(6):
            await apps.create(NewApp(name=f"app-{number}", image=IMAGE), ASKER)

        values = await metrics.until(lambda found: ("app_memory_bytes", "app-5") in found)

    assert ("app_memory_bytes", "app-0") not in values
    assert values["app_state", "app-0/running"] == 1


@pytest.mark.slow
async def test_a_measurement_of_the_disk_that_hangs_leaves_all_else_fresh(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    engine.disk_hangs = True
    async with measured(tmp_path, engine) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)

        async def hangs() -> bool:
            return engine.disk_measured == 1

        await async_until(hangs)
        engine.cpu_ns = 7 * 10**9
        await metrics.until(
            lambda values: values.get(("app_cpu_seconds_total", "shop")) == 7,
        )
        await apps.stop("shop", ASKER)
        values = await metrics.until(lambda values: ("app_state", "shop/exited") in values)

    assert engine.disk_measured == 1
    assert not {("app_layer_bytes", "shop"), ("app_volumes_bytes", "shop")} & values.keys()


@pytest.mark.slow
async def test_an_unexpected_error_does_not_end_the_measuring(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    engine.defects = [KeyError("unforeseen")]
    async with measured(tmp_path, engine) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)

        await metrics.until(lambda found: ("app_memory_bytes", "shop") in found)

    assert engine.defects == []


@pytest.mark.slow
async def test_nothing_is_said_of_apps_while_the_engine_is_gone(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    async with measured(tmp_path, engine) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        await metrics.until(lambda found: ("app_memory_bytes", "shop") in found)

        engine.gone = True
        await metrics.until(lambda found: ("app_state", "shop/running") not in found)
        engine.gone = False
        await metrics.until(lambda found: ("app_state", "shop/running") in found)
