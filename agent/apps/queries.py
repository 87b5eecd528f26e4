"""Looking at apps: always at the engine, never at what was once known."""

import time
from collections.abc import AsyncGenerator, Collection

import msgspec

from agent.apps import views
from agent.apps.container_spec import APP_LABEL
from agent.apps.errors import AppNotRunning
from agent.apps.operations.runner import OperationRunner, RunningOperation
from agent.apps.repository import AppRepository
from agent.apps.views import AppView
from agent.engine.protocol import (
    Container,
    Engine,
    EngineConflict,
    EngineError,
    ObjectNotFound,
    Process,
    Sample,
)
from agent.model import App

# An average over longer than this says nothing about now.
OLDEST_SAMPLE_SECONDS = 300.0


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses. ``cpu_percent`` is of one core, since the reading before.

    What cannot be told is None: memory is, where the host's kernel does not count it.
    """

    cpu_percent: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    network_rx_bytes: int
    network_tx_bytes: int
    block_read_bytes: int
    block_write_bytes: int
    pids: int


class AppQueries:
    """Answers questions about apps."""

    def __init__(
        self, *, engine: Engine, repository: AppRepository, operations: OperationRunner
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._operations = operations
        self._samples: dict[str, tuple[float, Sample]] = {}

    async def all(
        self, *, labels: Collection[str] = (), states: Collection[str] = ()
    ) -> list[AppView]:
        """List apps by name: those with all of the labels, in any of the states."""
        containers = await self.containers()
        found = [
            self._summary(app, containers.get(app.container_id or ""))
            for app in self._repository.all()
            if all(label in app.labels for label in labels)
        ]
        return [record for record in found if not states or record.state in states]

    async def containers(self, *, seconds: float | None = None) -> dict[str, Container]:
        """Give our containers by their id."""
        listed = await self._engine.containers(label=APP_LABEL, seconds=seconds)
        return {container.id: container for container in listed}

    def _summary(self, app: App, container: Container | None) -> AppView:
        job = self._current_operation(app.name)
        return views.summary(app, container, job, since(job.since) if job else "")

    async def one(self, name: str) -> AppView:
        """Give one app; AppNotFound."""
        app = self._repository.get(name)
        try:
            container = await self._engine.inspect(app.container_id) if app.container_id else None
        except ObjectNotFound:
            container = None
        job = self._current_operation(name)
        return views.full(app, container, job, since(job.since) if job else "")

    def _current_operation(self, name: str) -> RunningOperation | None:
        """Give the change of an app under way, or the one that broke off and is not settled yet."""
        job, unfinished = self._operations.current(name), self._repository.change(name)
        if job is None and unfinished is not None:
            return RunningOperation(
                app=name,
                operation=unfinished.operation,
                by=unfinished.by,
                since=unfinished.since,
                promised=unfinished.promised,
                step="waiting for the engine",
            )
        return job

    async def processes(self, name: str) -> list[Process]:
        """List an app's processes, none when it does not run."""
        app = self._repository.get(name)
        if app.container_id is None:
            return []
        try:
            return await self._engine.processes(app.container_id)
        except (EngineConflict, ObjectNotFound):
            return []

    async def stats(self, name: str) -> Stats:
        """Measure an app.

        Raises:
            AppNotRunning: there is nothing to measure.
            EngineError: it runs, and the engine does not measure it.

        """
        app, idle = self._repository.get(name), AppNotRunning(f"app `{name}` does not run")
        if app.container_id is None:
            raise idle
        try:
            sample = await self._engine.sample(app.container_id)
            runs = sample is not None or await self._runs(app.container_id)
        except (EngineConflict, ObjectNotFound) as error:
            raise idle from error
        if not runs:
            raise idle
        if sample is None:
            raise EngineError(f"app `{name}` runs, but the container engine gives no figures of it")
        return self._stats(app.container_id, sample)

    async def _runs(self, container_id: str) -> bool:
        return (await self._engine.inspect(container_id)).state == "running"

    def _stats(self, container_id: str, sample: Sample) -> Stats:
        now = time.monotonic()
        before, previous = self._samples.pop(container_id, (now, sample))
        self._samples[container_id] = (now, sample)
        recent = now - before <= OLDEST_SAMPLE_SECONDS
        return Stats(
            cpu_percent=cpu_percent(previous, sample) if recent else None,
            memory_bytes=sample.memory_bytes,
            memory_limit_bytes=sample.memory_limit_bytes,
            network_rx_bytes=sample.network_rx_bytes,
            network_tx_bytes=sample.network_tx_bytes,
            block_read_bytes=sample.block_read_bytes,
            block_write_bytes=sample.block_write_bytes,
            pids=sample.pids,
        )

    def forget_samples(self, existing: Collection[str]) -> None:
        """Let go of the samples of containers that are gone."""
        for container_id in self._samples.keys() - existing:
            del self._samples[container_id]

    async def logs(
        self, name: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Give what an app wrote, in its own bytes; AppNotFound, AppNotRunning."""
        container_id = self._repository.get(name).container_id
        try:
            seen = await self._engine.inspect(container_id) if container_id is not None else None
        except ObjectNotFound:
            seen = None
        if seen is None:
            raise AppNotRunning(f"app `{name}` has no container, so there is no log")
        return self._engine.logs(seen.id, tail=tail, since=since, follow=follow)


def cpu_percent(previous: Sample, sample: Sample) -> float | None:
    """Give percent of one core between two samples, None where they do not follow each other."""
    used, passed = sample.cpu_ns - previous.cpu_ns, sample.system_ns - previous.system_ns
    if passed <= 0 or used < 0:
        return None
    return round(used / passed * sample.cpus * 100, 2)


def since(moment: float) -> str:
    """Give a Unix time as RFC 3339 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
