"""AskedApps that are measured over an engine in memory, and what a scrape would show of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import LogCapture

from agent.apps.metrics.exporter import AppMetrics
from agent.apps.metrics.sampler import AppSampler, Intervals
from agent.apps.records import AppView
from agent.engine.errors import EngineUnavailable
from agent.engine.models import DiskUsage, Sample
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import AskedApps, running_apps
from tests.support.waiting import async_until

OFTEN = Intervals(states=0.02, usage=0.02, disk=0.02, debounce=0, first_disk=0, usage_timeout=0.5)
LOG = structlog.wrap_logger(None, processors=[LogCapture()])
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
) -> AsyncIterator[tuple[AskedApps, Metrics]]:
    """Run apps that are measured, and yield what a scrape would show of them."""
    sampler = AppSampler(engine=engine, log=LOG, intervals=intervals)

    async def records() -> list[AppView]:
        if engine.gone:
            raise EngineUnavailable("the engine is gone")
        return await apps.queries.all()

    async with running_apps(folder, engine, LogCapture()) as apps, sampler.sampling(records):
        yield apps, Metrics(sampler)


def a_record(name: str, *, container_id: str | None = None) -> AppView:
    """Return the record of an app that runs."""
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
        finished_at=None,
        exit_code=None,
        restarts=0,
        crashing=False,
        message=None,
        password=None,
        progress=None,
        revision=None,
    )
