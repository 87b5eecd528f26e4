"""The wiring of the roll call: a line, a ledger and a reporter for each registry."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import SystemRandom

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.reporting.backoff import Backoff
from agent.reporting.connections import RegistryConnection
from agent.reporting.group import HeartbeatBuilder
from agent.reporting.registry_status import HeartbeatMetrics, RegistryStatusRecorder
from agent.reporting.reporter import Reporter
from agent.reporting.status import AgentStatus, StatusFile
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity


class ReporterFactory:
    """Makes what reports to each registry, and writes down how this host stands with them."""

    def __init__(
        self,
        *,
        heartbeat_builder: HeartbeatBuilder,
        hostname: str,
        interval_seconds: float,
        identity: Identity,
        deregistration: Deregistration,
        status_file: StatusFile,
        metrics: CollectorRegistry,
        log: FilteringBoundLogger,
    ) -> None:
        self._heartbeat_builder = heartbeat_builder
        self._hostname = hostname
        self._interval = interval_seconds
        self._identity = identity
        self._deregistration = deregistration
        self._status_file = status_file
        self._metrics = HeartbeatMetrics(metrics)
        self._log = log
        self._started_at = time.time()
        self._recorders: list[RegistryStatusRecorder] = []

    @asynccontextmanager
    async def reporters(
        self, registry_connections: Sequence[RegistryConnection]
    ) -> AsyncIterator[list[Reporter]]:
        """Open the lines, and give a reporter for each."""
        async with AsyncExitStack() as stack:
            for connection in registry_connections:
                await stack.enter_async_context(connection.client)
            reporters = [self._reporter(connection) for connection in registry_connections]
            self._write_status()
            yield reporters

    def _reporter(self, connection: RegistryConnection) -> Reporter:
        recorder = RegistryStatusRecorder(
            url=connection.url,
            metrics=self._metrics,
            clock=time.time,
            monotonic=time.monotonic,
            on_change=self._write_status,
            log=self._log,
        )
        self._recorders.append(recorder)
        return Reporter(
            url=connection.url,
            registry=connection.client,
            hostname=self._hostname,
            heartbeat=self._heartbeat_builder.heartbeat,
            key=connection.key,
            interval_seconds=self._interval,
            backoff=Backoff(max_seconds=self._interval, random=SystemRandom()),
            identity=self._identity,
            deregistration=self._deregistration,
            recorder=recorder,
            monotonic=time.monotonic,
            log=self._log,
        )

    def _write_status(self) -> None:
        self._status_file.write(
            AgentStatus(
                agent_id=self._identity.id,
                started_at=self._started_at,
                hosting=self._heartbeat_builder.last_hosted_apps,
                registries=[recorder.registry_status for recorder in self._recorders],
            )
        )
