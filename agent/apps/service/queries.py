"""Queries about apps. The engine is asked each time; nothing is cached."""

import time
from collections.abc import AsyncGenerator, Collection
from dataclasses import replace
from typing import TypeVar

import msgspec

from agent.apps.errors import AppNotRunning
from agent.apps.host import Host
from agent.apps.labels import APP_LABEL
from agent.apps.records import AppView, record, with_inspection
from agent.apps.runner.runner import OperationRunner
from agent.engine.errors import (
    EngineConflict,
    EngineRejected,
    ObjectNotFound,
)
from agent.engine.models import (
    Container,
    Process,
    Sample,
)

# An average over a longer time says nothing about the present.
MAX_SAMPLE_AGE_SECONDS = 300.0
MAX_USER_NAME = 32

ContainerT = TypeVar("ContainerT", bound=Container)


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses.

    ``cpu_percent`` is of one core, since the query before, None for the first one. Memory is None
    where the host's kernel does not count it.
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
    """Answers queries about apps."""

    def __init__(self, host: Host, runner: OperationRunner) -> None:
        self._host = host
        self._context = host.context
        self._runner = runner
        self._samples: dict[str, tuple[float, Sample]] = {}

    async def all(
        self, *, labels: Collection[str] = (), states: Collection[str] = ()
    ) -> list[AppView]:
        """List apps by name: those with all of the labels, in any of the states."""
        listed = await self._context.engine.containers(label=APP_LABEL)
        containers, wanted = await self._own(listed), frozenset(labels)
        found = [
            record(
                self._host,
                app,
                containers.get(app.container_id or ""),
                self._runner.status(app.name),
            )
            for app in self._context.repository.all()
            if not wanted or wanted.issubset(app.labels)
        ]
        return [each for each in found if not states or each.state in states]

    async def containers(self, seconds: float | None = None) -> dict[str, Container]:
        """Return this agent's containers of apps by id, with what the checks of the apps found."""
        return await self._own(
            await self._context.engine.containers(label=APP_LABEL, seconds=seconds)
        )

    async def _own(self, listed: Collection[Container]) -> dict[str, Container]:
        found = {each.id: each for each in await self._context.ownership.own(listed)}
        findings = self._context.health.findings
        for app in self._context.repository.existing():
            if app.container_id in found:
                found[app.container_id] = findings.shown(app, found[app.container_id])
        return found

    async def one(self, name: str) -> AppView:
        """Return one app; AppNotFound."""
        app = self._context.repository.get(name)
        try:
            container = (
                await self._context.engine.inspect(app.container_id) if app.container_id else None
            )
        except ObjectNotFound:
            container = None
        if container is not None and not await self._context.ownership.owns(container):
            container = None
        if container is not None:
            container = self._context.health.findings.shown(app, container)
            # Only an inspection shows all of the last run.
            self._context.health.runs.inspected(app.name, container)
        view = record(self._host, app, container, self._runner.status(name))
        return with_inspection(view, container)

    async def processes(self, name: str) -> list[Process]:
        """List an app's processes, none when it does not run."""
        app = self._context.repository.get(name)
        if app.container_id is None:
            return []
        try:
            found = await self._context.engine.processes(app.container_id)
            return await self._with_user_names(app.container_id, found)
        except (EngineConflict, ObjectNotFound):
            return []

    async def _with_user_names(self, container_id: str, found: list[Process]) -> list[Process]:
        """Return processes with the names of their users in the container, where it has any."""
        try:
            passwd = await self._context.engine.read_file(container_id, "/etc/passwd")
        except EngineRejected:
            return found
        names = dict[str, str]()
        for line in passwd.decode("utf-8", "replace").split("\n"):
            match line.split(":"):
                case [name, _, user_id, *_] if name:
                    names.setdefault(user_id, name[:MAX_USER_NAME])
        return [replace(each, user=names.get(each.user, each.user)) for each in found]

    async def stats(self, name: str) -> Stats:
        """Measure an app.

        Raises:
            AppNotRunning: it does not run.
            EngineRejected: it runs, and the engine does not measure it.

        """
        app, idle = (
            self._context.repository.get(name),
            AppNotRunning(f"app `{name}` does not run; start it"),
        )
        if app.container_id is None:
            raise idle
        try:
            sample = await self._context.engine.sample(app.container_id)
            runs = sample is not None or await self._runs(app.container_id)
        except (EngineConflict, ObjectNotFound) as error:
            raise idle from error
        if not runs:
            raise idle
        if sample is None:
            raise EngineRejected(f"app `{name}` runs, but the container engine does not measure it")
        return self._stats(app.container_id, sample)

    async def _runs(self, container_id: str) -> bool:
        return (await self._context.engine.inspect(container_id)).state == "running"

    def _stats(self, container_id: str, sample: Sample) -> Stats:
        now = time.monotonic()
        self._samples = {
            each: (taken, kept)
            for each, (taken, kept) in self._samples.items()
            if now - taken <= MAX_SAMPLE_AGE_SECONDS
        }
        _, previous = self._samples.get(container_id, (now, sample))
        self._samples[container_id] = (now, sample)
        return Stats(
            cpu_percent=cpu_percent(previous, sample),
            memory_bytes=sample.memory_bytes,
            memory_limit_bytes=sample.memory_limit_bytes,
            network_rx_bytes=sample.network_rx_bytes,
            network_tx_bytes=sample.network_tx_bytes,
            block_read_bytes=sample.block_read_bytes,
            block_write_bytes=sample.block_write_bytes,
            pids=sample.pids,
        )

    async def logs(
        self,
        name: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Return what an app wrote, in its own bytes; AppNotFound, AppNotRunning."""
        container_id = self._context.repository.get(name).container_id
        try:
            seen = (
                await self._context.engine.inspect(container_id)
                if container_id is not None
                else None
            )
        except ObjectNotFound:
            seen = None
        if seen is None:
            raise AppNotRunning(f"app `{name}` has no container, so there is no log; start it")
        return self._context.engine.logs(
            seen.id, tail=tail, since=since, follow=follow, timestamps=timestamps
        )


def cpu_percent(previous: Sample, sample: Sample) -> float | None:
    """Return percent of one core between two samples, None where they are not consecutive."""
    used, passed = sample.cpu_ns - previous.cpu_ns, sample.system_ns - previous.system_ns
    if passed <= 0 or used < 0:
        return None
    return round(used / passed * sample.cpus * 100, 2)
