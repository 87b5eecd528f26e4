"""When apps are measured: now and then, after a change, and never for a scrape."""

import asyncio
from collections import defaultdict
from copy import deepcopy
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.metrics.sampler import AppSampler, Intervals
from agent.apps.views.apps import AppView
from agent.engine.models import DiskUsage, EngineInfo, InspectedContainer, Sample
from agent.model import NewApp
from tests.support.agent.apps.measured_apps import LOG, MeasuredEngine, Metrics, a_record
from tests.support.agent.engines.fake_engine import IMAGE
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.machine.clocks import in_virtual_time

HOUR = 3600
# No measurement is due then.
END = 2 * HOUR - 15


@pytest.mark.slow
async def test_a_change_is_seen_before_the_next_look_is_due(tmp_path: Path) -> None:
    engine = MeasuredEngine()
    sampler = AppSampler(
        engine=engine,
        log=LOG,
        intervals=Intervals(states=600, usage=600, debounce=0),
    )
    async with (
        running_apps(tmp_path, engine, LogCapture()) as apps,
        sampler.sampling(apps.queries.all),
    ):
        metrics = Metrics(sampler)
        await metrics.until(lambda found: ("agent_host_cpus", "") in found)
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        assert ("app_state", "shop/running") not in metrics.values()

        sampler.look_soon()

        await metrics.until(lambda found: ("app_state", "shop/running") in found)


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

    def note(self, what: str) -> None:
        self.times[what].append(asyncio.get_running_loop().time())

    async def info(self) -> EngineInfo:
        self.note("info")
        return await super().info()

    async def inspect(self, container_id: str) -> InspectedContainer:
        self.note("inspect")
        return await super().inspect(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        self.note("sample")
        return await super().sample(container_id, priority=priority)

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        self.note("disk")
        return await super().disk_usage(seconds=seconds)


@pytest.mark.slow
async def test_a_scrape_asks_the_engine_for_nothing() -> None:
    engine = TimedEngine()
    engine.state.containers["c1"] = RUNNING
    sampler = AppSampler(engine=engine, log=LOG, intervals=Intervals(first_disk=0, debounce=0))
    metrics = Metrics(sampler)

    async def records() -> list[AppView]:
        engine.note("list")
        return [a_record("shop", container_id="c1")]

    async with sampler.sampling(records):
        measured = {("app_memory_bytes", "shop"), ("app_layer_bytes", "shop")}
        await metrics.until(lambda found: found.keys() >= measured)
        asked = deepcopy(engine.times)
        for _ in range(20):
            metrics.values()
            await asyncio.sleep(0)

    assert engine.times == asked
    assert asked.keys() == {"list", "info", "inspect", "sample", "disk"}


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
