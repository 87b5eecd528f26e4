"""What the sampler measures, and keeps for charts."""

import asyncio
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from agent.apps.metrics.sampler import STEPS, AppSampler, Intervals, Usage, UsageHistory
from agent.apps.records import AppView
from agent.engine.models import MIB, DiskUsage, EngineInfo, InspectedContainer, Sample
from agent.model import NewApp
from tests.support.agent.apps.measured_apps import LOG, MeasuredEngine, Metrics, a_record
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.machine.clocks import in_virtual_time
from tests.support.waiting import async_until

SECOND_NS = 10**9
OFTEN = Intervals(states=0.02, usage=0.02, disk=60, debounce=0, first_disk=60)
HOUR = 3600
# No measurement is due then.
END = 2 * HOUR - 15
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


def measured(seconds: float, at: float, *, container: str = "c1", memory: int = MIB) -> Usage:
    """Return what a container had used: seconds of CPU, at a time."""
    sample = Sample(
        cpu_ns=int(seconds * SECOND_NS),
        system_ns=0,
        cpus=2,
        memory_bytes=memory,
        memory_limit_bytes=None,
        network_rx_bytes=0,
        network_tx_bytes=0,
        block_read_bytes=0,
        block_write_bytes=0,
        pids=1,
    )
    return Usage(
        container_id=container, restarts=0, sample=sample, image_created_at=None, measured_at=at
    )


def test_cpu_is_the_mean_since_the_step_before_in_percent_of_one_core() -> None:
    history = UsageHistory(step_seconds=60)
    history.record(1000, {"web": measured(5, 1000)})
    history.record(1060, {"web": measured(95, 1060, memory=2 * MIB)})
    history.record(1120.7, {"web": measured(98, 1120)})

    samples = history.samples(["web"])

    assert (samples.step_seconds, samples.until) == (60, 1120)
    assert samples.apps[0].cpu_percent == [None, 150.0, 5.0]
    assert samples.apps[0].memory_bytes == [MIB, 2 * MIB, MIB]


def test_what_was_not_measured_or_cannot_be_compared_is_none() -> None:
    history = UsageHistory(step_seconds=60)
    for at, seconds, container in (
        *((60, 1, "c1"), (120, 2, "c2"), (180, 1, "c2"), (180, 3, "c2"), (240, 3, "c2")),
    ):
        history.record(at, {"web": measured(seconds, at, container=container)})
    history.record(300, {})

    [db, web] = history.samples(["web", "db"]).apps

    assert web.cpu_percent == [None, None, None, None, 0.0, None]
    assert web.memory_bytes == [*[MIB] * 5, None]
    assert db.cpu_percent == db.memory_bytes == [None] * 6


def test_an_hour_is_kept_and_nothing_is_reported_before_the_first_step() -> None:
    history = UsageHistory(step_seconds=60)
    assert msgspec.to_builtins(history.samples([])) == {
        "step_seconds": 60,
        "until": None,
        "apps": [],
    }
    for number in range(2 * STEPS):
        history.record(60 * number, {"web": measured(number, 60 * number)})
    assert len(history.samples(["web"]).apps[0].cpu_percent) == STEPS


@pytest.mark.slow
async def test_the_apps_of_the_engine_are_measured(tmp_path: Path) -> None:
    engine, log = FakeEngine(), structlog.wrap_logger(None, processors=[LogCapture()])
    sampler = AppSampler(engine=engine, log=log, intervals=OFTEN)
    async with (
        running_apps(tmp_path, engine, LogCapture()) as apps,
        sampler.sampling(apps.queries.all),
    ):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        await apps.create(NewApp(name="blog", image=IMAGE), ASKER)

        async def are_measured() -> bool:
            return [each.memory_bytes[-2:] for each in sampler.usage().apps] == [[MIB, MIB]] * 2

        await async_until(are_measured)
        assert [each.name for each in sampler.usage().apps] == ["blog", "shop"]
        assert sampler.usage().apps[0].cpu_percent[-1] == 0.0
        await apps.delete("blog", ASKER)

        async def is_gone() -> bool:
            return [each.name for each in sampler.usage().apps] == ["shop"]

        await async_until(is_gone)


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
