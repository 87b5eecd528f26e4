"""What /metrics says of apps, also where a measurement hangs or fails."""

from pathlib import Path

import pytest

from agent.engine.models import MIB
from agent.model import AppChanges, NewApp
from tests.support.agent.apps.measured_apps import (
    MeasuredEngine,
    measured,
)
from tests.support.agent.engines.fake_engine import (
    DATA_IMAGE,
    IMAGE,
    IMAGE_IDS,
    OTHER_IMAGE,
)
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


@pytest.mark.slow
async def test_they_show_state_use_and_disk_of_each_app(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    async with measured(tmp_path, engine) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=DATA_IMAGE, memory=64), ASKER)
        await apps.create(NewApp(name="blog", image=IMAGE, memory=32), ASKER)
        await apps.stop("blog", ASKER)

        wanted = {
            ("app_memory_bytes", "shop"),
            ("app_layer_bytes", "blog"),
            ("app_state", "blog/exited"),
            ("agent_host_cpus", ""),
        }
        values = await metrics.until(
            lambda found: (
                found.keys() >= wanted and found["app_desired_running", "blog"] == 0
            )  # the record says so after the engine does
        )

    (shop,) = [each for each in engine.state.containers.values() if each.name == "shop"]
    assert values["app_state", "shop/running"] == 1
    assert values["app_desired_running", "shop"] == 1
    assert values["app_memory_limit_bytes", "shop"] == 64 * MIB
    assert values["app_memory_bytes", "shop"] == MIB
    assert values["app_cpu_seconds_total", "shop"] == 0
    assert values["app_engine_restarts_total", "shop"] == shop.restarts
    assert values["app_volumes_bytes", "shop"] == len(shop.volumes) * 2 * MIB
    assert values["app_layer_bytes", "shop"] == MIB
    assert values["app_state", "blog/exited"] == 1
    assert ("app_memory_bytes", "blog") not in values
    assert values["agent_promised_memory_bytes", ""] == 96 * MIB
    assert values["agent_host_memory_bytes", ""] == 4096 * MIB
    assert values["agent_host_cpus", ""] == 4


@pytest.mark.slow
async def test_they_show_the_health_of_each_app_that_has_a_check(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    engine.health_of = {IMAGE_IDS[IMAGE]: "healthy", IMAGE_IDS[OTHER_IMAGE]: "unhealthy"}
    async with measured(tmp_path, engine) as (apps, metrics):
        for name, image in (("well", IMAGE), ("ill", OTHER_IMAGE), ("unchecked", DATA_IMAGE)):
            await apps.create(NewApp(name=name, image=image), ASKER)

        states = {("app_state", f"{name}/running") for name in ("well", "ill", "unchecked")}
        values = await metrics.until(lambda found: found.keys() >= states)

    found = {name: value for (metric, name), value in values.items() if metric == "app_healthy"}
    assert found == {"well": 1, "ill": 0}


@pytest.mark.slow
async def test_an_app_that_is_gone_or_replaced_leaves_no_figures_behind(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    async with measured(tmp_path, engine) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        await metrics.until(lambda found: ("app_memory_bytes", "shop") in found)

        engine.hanging = "shop"
        await apps.update("shop", AppChanges(env={"A": "b"}), ASKER)
        await metrics.until(lambda found: ("app_memory_bytes", "shop") not in found)
        await apps.delete("shop", ASKER)
        await metrics.until(lambda found: not any(app == "shop" for _, app in found))
