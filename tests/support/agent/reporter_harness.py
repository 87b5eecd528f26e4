"""A reporter with real surroundings and a registry that does as it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger, LogCapture

from agent.reporting.backoff import Backoff
from agent.reporting.registry_status import HeartbeatMetrics, RegistryStatusRecorder
from agent.reporting.reporter import Reporter
from agent.state.deregistration import Deregistration
from agent.state.identity import Identity
from registry.client.client import Unreachable
from registry.message import Heartbeat
from tests.support.agent.fake_registry import FakeRegistry

URL = "http://registry:7655"
UNREACHABLE = Unreachable("Connection refused")


class ReporterHarness:
    """A reporter with its surroundings; ``label`` is what the host says."""

    def __init__(
        self,
        folder: Path,
        *,
        hostname: str = "web-1",
        interval: float = 3600,
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
            monotonic=asyncio.get_running_loop().time,
            on_change=self.noted.set,
            log=log,
        )
        self.reporter = Reporter(
            url=URL,
            registry=self.registry,
            hostname=hostname,
            heartbeat=self.heartbeat,
            key=lambda: self.key,
            interval_seconds=interval,
            backoff=backoff or Backoff(max_seconds=0.01, random=Random(1)),
            identity=self.identity,
            deregistration=self.deregistration,
            recorder=self.recorder,
            monotonic=asyncio.get_running_loop().time,
            log=log,
        )

    async def heartbeat(self) -> Heartbeat:
        """Give what the host says."""
        self.builds += 1
        return Heartbeat(labels=[self.label], kv={})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeRegistry]:
        """Let the reporter run; give its registry."""
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
        """Give how often heartbeats had this outcome."""
        labels = {"registry": URL, "outcome": outcome}
        return self.metrics.get_sample_value("rollcall_agent_heartbeats_total", labels) or 0

    def events(self) -> list[tuple[str, str]]:
        """Give the log, without what is beside the words."""
        return [(line["event"], line.get("kind", "")) for line in self.lines.entries]
