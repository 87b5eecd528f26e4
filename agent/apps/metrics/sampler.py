"""Measures what apps use, at intervals, so that a request for metrics costs the engine nothing."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.records import AppView
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.engine.models import (
    DiskUsage,
    EngineInfo,
    Sample,
)
from runtime.periodic import PeriodicTask

STEPS = 60
PERCENT_PER_NANOSECOND = 100 / 10**9
NOT_MEASURED = (None, None)
MEASURED_AT_ONCE = 4
MEASURED_STATES = frozenset({"running", "paused", "restarting"})
Records = Callable[[], Awaitable[Sequence[AppView]]]
NO_DISK_USAGE = DiskUsage(volumes={}, containers={})


class AppUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each step, the oldest first; None where the app was not measured.

    ``cpu_percent`` is of one core, as the mean since the step before.
    """

    name: str
    cpu_percent: list[float | None]
    memory_bytes: list[int | None]


class UsageSamples(msgspec.Struct, frozen=True, kw_only=True):
    """What apps have used, by name. The last step was measured at ``until``, in Unix time.

    ``until`` is None before the first measurement. Steps are ``step_seconds`` apart, or a little
    more where the engine is slow.
    """

    step_seconds: float
    until: int | None
    apps: list[AppUsage]


class Intervals(NamedTuple):
    """The intervals of measurements, in seconds.

    ``states``: one list of all containers. ``usage``: an inspect and a sample of each app that
    runs. ``disk``: all volumes and containers, over which the engine may read for minutes.
    ``debounce``: changes in this time after one are looked at together.
    """

    states: float = 30.0
    usage: float = 60.0
    disk: float = 3600.0
    debounce: float = 1.0
    # Not right at the start, when there is much to do.
    first_disk: float = 60.0
    # An app that takes longer to measure has no figures, and does not delay the others.
    usage_timeout: float = 5.0
    disk_timeout: float = 900.0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the container of an app has used, and when its image was built, in RFC 3339.

    ``restarts`` are those by the engine, ``measured_at`` is a Unix time in seconds.
    """

    container_id: str
    restarts: int
    sample: Sample | None
    image_created_at: str | None
    measured_at: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All that was measured: the apps by name, the disk, and the host, None if it is unknown.

    ``promised_memory`` is what all apps together may use, in MiB; failed ones use none.
    """

    apps: Mapping[str, AppView] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    disk: DiskUsage = NO_DISK_USAGE
    host: EngineInfo | None = None
    promised_memory: int = 0


class UsageHistory:
    """The last 60 measurements of all apps, in memory."""

    def __init__(self, *, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._before: Mapping[str, Usage] = {}
        self._steps: deque[Mapping[str, tuple[float | None, int | None]]] = deque(maxlen=STEPS)
        self._until: float | None = None

    def record(self, at: float, step: Mapping[str, Usage]) -> None:
        """Record what apps have used, by their names."""
        self._steps.append(
            {
                name: (_cpu_percent(self._before.get(name), now), now.sample.memory_bytes)
                for name, now in step.items()
                if now.sample is not None
            }
        )
        self._before = step
        self._until = at

    def samples(self, names: Collection[str]) -> UsageSamples:
        """Return what the apps with these names have used."""
        return UsageSamples(
            step_seconds=self._step_seconds,
            until=None if self._until is None else int(self._until),
            apps=[self._of(name) for name in sorted(names)],
        )

    def _of(self, name: str) -> AppUsage:
        pairs = [step.get(name, NOT_MEASURED) for step in self._steps]
        return AppUsage(
            name=name,
            cpu_percent=[cpu_percent for cpu_percent, _ in pairs],
            memory_bytes=[memory_bytes for _, memory_bytes in pairs],
        )


def _cpu_percent(before: Usage | None, now: Usage) -> float | None:
    if before is None or before.sample is None or now.sample is None:
        return None
    if before.container_id != now.container_id:
        return None
    seconds = now.measured_at - before.measured_at
    spent = now.sample.cpu_ns - before.sample.cpu_ns
    if seconds <= 0 or spent < 0:  # the clock was set, or the container was started again
        return None
    return round(spent * PERCENT_PER_NANOSECOND / seconds, 1)


DEFAULT_INTERVALS = Intervals()


class AppSampler:
    """Measures the apps of the engine."""

    def __init__(
        self,
        *,
        engine: Engine,
        log: FilteringBoundLogger,
        intervals: Intervals = DEFAULT_INTERVALS,
        clock: Callable[[], float] = time,
    ) -> None:
        """``clock`` returns Unix time in seconds."""
        self.figures = Figures()
        self._clock = clock
        self._history = UsageHistory(step_seconds=intervals.usage)
        self._engine = engine
        self._log = log
        self._intervals = intervals
        self._changed = asyncio.Event()
        self._changed.set()
        self._disk_pause = intervals.first_disk
        self._slots = asyncio.Semaphore(MEASURED_AT_ONCE)
        # When images were built, by id: they never change.
        self._built: dict[str, str | None] = {}

    @asynccontextmanager
    async def sampling(self, records: Records) -> AsyncIterator[None]:
        """Measure the apps whose records are returned, by name, while the context is open."""
        async with AsyncExitStack() as stack:
            for interval, action in (
                (self._intervals.debounce, partial(self._look_after_change, records)),
                (self._intervals.usage, partial(self._measure, records)),
                (0, self._measure_disk),
            ):
                # The watcher logs that the engine cannot be asked.
                task = PeriodicTask(
                    interval=interval, action=action, log=self._log, ignored=(EngineError,)
                )
                await stack.enter_async_context(task)
            yield

    def usage(self) -> UsageSamples:
        """Return what the apps have used over the last hour."""
        return self._history.samples(self.figures.apps.keys())

    def look_soon(self) -> None:
        """Soon measure the states of apps: one may have changed."""
        self._changed.set()

    async def _look_after_change(self, records: Records) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._intervals.states):
                await self._changed.wait()
        self._changed.clear()
        await self._look(records)

    async def _look(self, records: Records) -> None:
        try:
            found = await records()
        except EngineError:
            self.figures = replace(self.figures, apps={}, usage={})  # no longer known
            raise
        apps = {record.name: record for record in found}
        usage = {
            name: used
            for name, used in self.figures.usage.items()
            if name in apps and apps[name].container_id == used.container_id
        }
        self.figures = replace(
            self.figures,
            apps=apps,
            usage=usage,
            promised_memory=sum(each.memory for each in found if each.state != "failed"),
        )

    async def _measure(self, records: Records) -> None:
        host = await self._engine.info()
        await self._look(records)
        apps = list(self.figures.apps.values())
        found = await asyncio.gather(*map(self._usage, apps))
        present = {app.container_id for app in self.figures.apps.values()}
        usage = {
            app.name: used
            for app, used in zip(apps, found, strict=True)
            if used is not None and used.container_id in present
        }
        self.figures = replace(self.figures, usage=usage, host=host)
        self._history.record(self._clock(), usage)
        used = {app.image_id for app in apps}
        self._built = {each: built for each, built in self._built.items() if each in used}

    async def _usage(self, app: AppView) -> Usage | None:
        """Return what an app has used; None if it has no container, or is not measured in time."""
        if app.container_id is None:
            return None
        try:
            async with self._slots, asyncio.timeout(self._intervals.usage_timeout):
                container = await self._engine.inspect(app.container_id)
                sample = None
                if container.state in MEASURED_STATES:
                    sample = await self._engine.sample(container.id, priority=True)
                measured_at = self._clock()
                return Usage(
                    container_id=container.id,
                    restarts=container.restarts,
                    sample=sample,
                    image_created_at=await self._image_created_at(container.image_id),
                    measured_at=measured_at,
                )
        except (TimeoutError, EngineError) as error:
            self._log.debug("app is not measured", app=app.name, reason=str(error))
            return None

    async def _image_created_at(self, image_id: str) -> str | None:
        if image_id not in self._built:
            image = await self._engine.image(image_id)
            self._built[image_id] = image.created_at if image is not None else None
        return self._built[image_id]

    async def _measure_disk(self) -> None:
        pause, self._disk_pause = self._disk_pause, self._intervals.disk
        await asyncio.sleep(pause)
        disk = await self._engine.disk_usage(seconds=self._intervals.disk_timeout)
        self.figures = replace(self.figures, disk=disk)
