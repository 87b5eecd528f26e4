"""A reporter with its real collaborators and a fake registry."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger, LogCapture

from agent.reporting.backoff import Backoff
from agent.reporting.connections import RegistryConnection
from agent.reporting.registration import Registration
from agent.reporting.reporter import Reporter, ReportTiming
from agent.reporting.status import HeartbeatMetrics, RegistryStatusRecorder
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity
from registry.client.client import ClientTls, Unreachable
from registry.message import Heartbeat
from tests.support.agent.fake_registry import FakeRegistry

URL = "http://registry:7655"
UNREACHABLE = Unreachable("Connection refused")


class ReporterHarness:
    """A reporter of a host with one label, ``label``. ``wall`` is its wall clock."""

    def __init__(
        self,
        folder: Path,
        *,
        hostname: str = "web-1",
        max_silence_seconds: float = 3600,
        backoff: Backoff | None = None,
    ) -> None:
        self.registry = FakeRegistry()
        self.label = "service:web"
        self.key = "rk1.web-1.secret"
        self.builds = 0
        self.wall = 1_000_000.0
        self.noted = asyncio.Event()
        self.identity = Identity(directory=folder, machine=None)
        self.deregistration = Deregistration(directory=folder)
        self.metrics = CollectorRegistry()
        self.lines = LogCapture()
        log = structlog.wrap_logger(CapturingLogger(), processors=[self.lines])
        self.recorder = RegistryStatusRecorder(
            url=URL,
            metrics=HeartbeatMetrics(self.metrics),
            clock=lambda: self.wall,
            on_change=self.noted.set,
            log=log,
        )
        connection = RegistryConnection(
            url=URL, key=lambda: self.key, client_tls=ClientTls(), client=self.registry
        )
        self.reporter = Reporter(
            registration=Registration(
                connection=connection, hostname=hostname, identity=self.identity, log=log
            ),
            heartbeat=self.heartbeat,
            deregistration=self.deregistration,
            recorder=self.recorder,
            timing=ReportTiming(
                max_silence_seconds=max_silence_seconds,
                backoff=backoff or Backoff(max_seconds=0.01, random=Random(1)),
            ),
        )

    async def heartbeat(self) -> Heartbeat:
        """Return what the host says, and count the calls in ``builds``."""
        self.builds += 1
        return Heartbeat(labels=[self.label], kv={})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeRegistry]:
        """Run the reporter while the context is open; yield its registry."""
        task = asyncio.create_task(self.reporter.run())
        try:
            yield self.registry
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until_attempt_ended(self) -> None:
        """Wait until an attempt has ended."""
        self.noted.clear()
        async with asyncio.timeout(30):
            await self.noted.wait()

    def count(self, outcome: str) -> float:
        """Return how many heartbeats had this outcome."""
        labels = {"registry": URL, "outcome": outcome}
        return self.metrics.get_sample_value("rollcall_agent_heartbeats_total", labels) or 0

    def events(self) -> list[tuple[str, str]]:
        """Return the event and the kind of each log line."""
        return [(line["event"], line.get("kind", "")) for line in self.lines.entries]
