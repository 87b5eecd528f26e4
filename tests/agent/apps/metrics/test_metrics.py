"""What /metrics says of apps."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import LogCapture

from agent.apps.metrics.collector import AppMetrics
from agent.apps.metrics.sampler import MAX_APPS, AppSampler, Intervals
from agent.apps.service.apps import Apps
from agent.apps.views.apps import AppView
from agent.engine.errors import EngineUnavailable
from agent.engine.models import (
    MIB,
    DiskUsage,
    InspectedContainer,
    Sample,
)
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import (
    DATA_IMAGE,
    IMAGE,
    FakeContainer,
    FakeEngine,
)
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.machine.clocks import in_virtual_time
from tests.support.waiting import async_until

OFTEN = Intervals(states=0.02, usage=0.02, disk=0.02, debounce=0, first_disk=0, usage_timeout=0.5)
LOG = structlog.wrap_logger(None, processors=[LogCapture()])
HOUR = 3600
# No measurement is due then.
END = 2 * HOUR - 15
Values = dict[tuple[str, str], float]


class Metrics:
    """What a scrape would show."""

    def __init__(self, sampler: AppSampler) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(AppMetrics(lambda: sampler.figures))

    def values(self) -> Values:
        """Return the values by metric, without its prefix, and app or state of an app."""
        text = generate_latest(self._registry).decode()
        return {
            (sample.name.removeprefix("rollcall_"), "/".join(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def until(self, condition: Callable[[Values], bool]) -> Values:
        """Return the values as soon as they are so."""
        values: Values = {}

        async def holds() -> bool:
            nonlocal values
            values = self.values()
            return condition(values)

        await async_until(holds)
        return values


class MeasuredEngine(FakeEngine):
    """An engine that measures some apps, hangs over others, and may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = ""
        self.gone = False
        self.defects: list[Exception] = []
        self.disk_measured = 0
        self.disk_hangs = False
        self.cpu_ns = 0

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        if self.defects:
            raise self.defects.pop()
        if self._find(container_id).name == self.hanging:
            await asyncio.Event().wait()
        sample = await super().sample(container_id, priority=priority)
        return None if sample is None else replace(sample, cpu_ns=self.cpu_ns)

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        self.disk_measured += 1
        if self.disk_hangs:
            await asyncio.Event().wait()
        return await super().disk_usage(seconds=seconds)


@asynccontextmanager
async def measured(
    folder: Path, engine: MeasuredEngine, intervals: Intervals = OFTEN
) -> AsyncIterator[tuple[Apps, Metrics]]:
    sampler = AppSampler(engine=engine, log=LOG, intervals=intervals)

    async def records() -> list[AppView]:
        if engine.gone:
            raise EngineUnavailable("the engine is gone")
        return await apps.all()

    async with running_apps(folder, engine, LogCapture()) as apps, sampler.sampling(records):
        yield apps, Metrics(sampler)


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
    assert values["app_restarts_total", "shop"] == shop.restarts
    assert values["app_volumes_bytes", "shop"] == len(shop.volumes) * 2 * MIB
    assert values["app_layer_bytes", "shop"] == MIB
    assert values["app_state", "blog/exited"] == 1
    assert ("app_memory_bytes", "blog") not in values
    assert values["agent_promised_memory_bytes", ""] == 96 * MIB
    assert values["agent_host_memory_bytes", ""] == 4096 * MIB
    assert values["agent_host_cpus", ""] == 4


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
    assert ("app_container_disk_bytes", "shop") not in values


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
async def test_a_scrape_asks_the_engine_for_nothing(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    async with measured(tmp_path, engine, Intervals(first_disk=0)) as (apps, metrics):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        for _ in range(20):
            metrics.values()
            await asyncio.sleep(0)

    assert engine.disk_measured == 1


@pytest.mark.slow
async def test_a_change_is_seen_before_the_next_look_is_due(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    sampler = AppSampler(
        engine=engine,
        log=LOG,
        intervals=Intervals(states=600, usage=600, debounce=0),
    )
    async with running_apps(tmp_path, engine, LogCapture()) as apps, sampler.sampling(apps.all):
        metrics = Metrics(sampler)
        await metrics.until(lambda found: ("agent_host_cpus", "") in found)
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        assert ("app_state", "shop/running") not in metrics.values()

        sampler.look_soon()

        await metrics.until(lambda found: ("app_state", "shop/running") in found)


@pytest.mark.slow
async def test_their_number_is_bounded_and_those_left_out_are_counted() -> None:
    engine = MeasuredEngine()
    sampler = AppSampler(engine=engine, log=LOG, intervals=OFTEN)

    async def records() -> list[AppView]:
        return [a_record(f"app-{number:04}") for number in range(MAX_APPS + 3)]

    async with sampler.sampling(records):
        values = await Metrics(sampler).until(lambda found: found["agent_unmeasured_apps", ""] > 0)

    assert values["agent_unmeasured_apps", ""] == 3
    assert len([name for name, _ in values if name == "app_state"]) == MAX_APPS


RUNNING = FakeContainer(
    id="c1",
    name="shop",
    image=IMAGE,
    image_id="i1",
    labels={},
    env={},
    ports=[],
    volumes={},
    cpu=100,
    memory=64,
    state="running",
)


class TimedEngine(MeasuredEngine):
    """An engine that notes when each thing was measured, by the event loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.times = defaultdict[str, list[float]](list)

    def _note(self, what: str) -> None:
        self.times[what].append(asyncio.get_running_loop().time())

    async def inspect(self, container_id: str) -> InspectedContainer:
        self._note("inspect")
        return await super().inspect(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        self._note("sample")
        return await super().sample(container_id, priority=priority)

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        self._note("disk")
        return await super().disk_usage(seconds=seconds)


@pytest.mark.slow
@in_virtual_time
async def test_cpu_and_memory_are_measured_each_minute_and_the_disk_each_hour_whoever_asks() -> (
    None
):
    engine = TimedEngine()
    engine.state.containers["c1"] = RUNNING
    sampler = AppSampler(engine=engine, log=LOG)
    metrics, lists = Metrics(sampler), list[float]()
    clock = asyncio.get_running_loop()

    async def records() -> list[AppView]:
        lists.append(clock.time())
        return [a_record("shop", container_id="c1")]

    async with sampler.sampling(records):
        while clock.time() < END:
            metrics.values()  # as a scrape does
            await asyncio.sleep(15)

    assert engine.times["sample"] == engine.times["inspect"] == list(range(0, END, 60))
    assert engine.times["disk"] == [60, 60 + HOUR]
    # With each measurement, and each 30 seconds after the second in which changes are awaited.
    looks = {*range(0, END, 60), *range(0, END, 31)}
    assert set(lists) == looks


def a_record(name: str, *, container_id: str | None = None) -> AppView:
    return AppView(
        name=name,
        image=IMAGE,
        ssh_port=1,
        http_port=2,
        cpu=100,
        memory=64,
        labels=(),
        state="running",
        desired="running",
        healthy=True,
        volumes={},
        container_id=container_id,
        image_id=None,
        created_at="2026-01-31T12:00:00Z",
        message=None,
        password=None,
        progress=None,
        revision=None,
    )


@pytest.mark.parametrize("turns", range(6))
async def test_the_measuring_ends_although_an_app_has_just_changed(turns: int) -> None:
    async def records() -> list[AppView]:
        return []

    async def loop_runs(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    closed = asyncio.Event()
    sampler = AppSampler(engine=MeasuredEngine(), log=LOG)

    async def measure() -> None:
        async with sampler.sampling(records):
            await loop_runs(50)  # until it waits for a change
            sampler.look_soon()
            await loop_runs(turns)
        closed.set()

    measuring = asyncio.create_task(measure())
    await loop_runs(200)

    assert closed.is_set()
    await measuring
