"""A reporter with its real collaborators, and the fake clients of the registries that it uses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger, LogCapture

from agent.reporting.connections import RegistryGroup
from agent.reporting.failover import Failover
from agent.reporting.reporter import Reporter, Reporters, ReportTiming
from agent.reporting.status import HeartbeatMetrics, HeartbeatRecorder, RegistryStatus
from agent.state.identity import Identity
from agent.state.lock import Deregistration
from clients.errors import NotFound, Unreachable
from clients.message import Heartbeat, Node
from clients.registry import RegistryClient
from clients.tls import ClientTls
from runtime.pauses import Backoff

URL = "http://registry:7655"
A, B, C = URLS = ["http://a:7655", "http://b:7655", "http://c:7655"]
UNREACHABLE = Unreachable("Connection refused")


class FakeRegistry(RegistryClient):
    """Takes heartbeats, or fails with what ``failure`` is set to. If ``silent``, it never answers.

    ``connected`` shows whether a connection is kept. ``reports`` and ``forgets`` count attempts.
    ``taken`` holds what was taken, ``forgotten`` the names that were deleted, with the identity and
    the key that were used. It keeps no nodes; names in ``unknown`` are answered with NotFound.
    """

    def __init__(self, url: str = URL) -> None:
        super().__init__(url=url, key=str)
        self.failure: Exception | None = None
        self.silent = False
        self.connected = False
        self.reports = 0
        self.forgets = 0
        self.taken: list[tuple[str, Heartbeat]] = []
        self.forgotten: list[tuple[str, str | None, str | None]] = []
        self.forget_failure: Exception | None = None
        self.unknown: set[str] = set()
        self._happened = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Open nothing."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close nothing."""

    async def disconnect(self) -> None:
        """Note that no connection is kept."""
        self.connected = False

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Take the heartbeat or fail."""
        self.connected = True
        self.reports += 1
        self._happened.set()
        if self.silent:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        self.taken.append((hostname, heartbeat))
        return Node(hostname=hostname, labels=heartbeat.labels, kv=heartbeat.kv, last_update=1)

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None, **_: bool
    ) -> None:
        """Note the name or fail."""
        self.forgets += 1
        self._happened.set()
        if self.forget_failure is not None:
            raise self.forget_failure
        if hostname in self.unknown:
            raise NotFound(f"404: no node {hostname} is known")
        self.forgotten.append((hostname, agent_id, key))

    async def until(self, condition: Callable[[], bool], *, within: float = 30) -> None:
        """Wait until a condition holds after a request."""
        async with asyncio.timeout(within):
            while not condition():
                self._happened.clear()
                await self._happened.wait()
                await asyncio.sleep(0)


class ReporterHarness:
    """A reporter of a host with one label, ``label``. ``wall`` is its wall clock.

    ``registries`` are those of its group, by URL, in its order; ``registry`` is the first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hostname: str = "web-1",
        registries: Mapping[str, FakeRegistry] | None = None,
        max_silence_seconds: float = 3600,
        backoff: Backoff | None = None,
    ) -> None:
        self.registries = registries or {URL: FakeRegistry()}
        self.registry = next(iter(self.registries.values()))
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
        clients = list(self.registries.values())
        group = RegistryGroup(clients=clients, key=lambda: self.key, client_tls=ClientTls())
        self.statuses = {
            url: RegistryStatus(url=url, alternatives=others)
            for url, others in group.alternatives()
        }
        recorder = HeartbeatRecorder(
            statuses=list(self.statuses.values()),
            metrics=HeartbeatMetrics(self.metrics),
            clock=lambda: self.wall,
            on_change=self.noted.set,
            log=log,
        )
        self.failover = Failover(
            group=group, hostname=hostname, identity=self.identity, recorder=recorder, log=log
        )
        self.reporter = Reporter(
            failover=self.failover,
            heartbeat=self.heartbeat,
            deregistration=self.deregistration,
            timing=ReportTiming(
                max_silence_seconds=max_silence_seconds,
                backoff=backoff or Backoff(max_seconds=0.01, random=Random(1)),
            ),
        )

    async def heartbeat(self, within_seconds: float | None) -> Heartbeat:
        """Return what the host says, and count the calls in ``builds``."""
        del within_seconds
        self.builds += 1
        return Heartbeat(labels=[self.label], kv={})

    @asynccontextmanager
    async def running(self, *, taken: int = 0) -> AsyncIterator[FakeRegistry]:
        """Run the reporter; yield its registry once that has taken so many heartbeats."""
        task = asyncio.create_task(self.reporter.run())
        try:
            await self.registry.until(lambda: len(self.registry.taken) >= taken)
            yield self.registry
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def started(self) -> Reporters:
        """Run the reporter as an agent does, once its registry has taken a heartbeat."""
        reporters = Reporters()
        reporters.start([self.reporter])
        await self.registry.until(lambda: len(self.registry.taken) == 1)
        return reporters

    async def until_attempt_ended(self) -> None:
        """Wait until an attempt has ended."""
        self.noted.clear()
        async with asyncio.timeout(30):
            await self.noted.wait()

    def count(self, outcome: str, url: str = URL) -> float:
        """Return how many heartbeats to a registry had this outcome."""
        labels = {"registry": url, "outcome": outcome}
        return self.metrics.get_sample_value("rollcall_agent_heartbeats_total", labels) or 0

    def events(self) -> list[tuple[str, str]]:
        """Return the event and the kind of each log line."""
        return [(line["event"], line.get("kind", "")) for line in self.lines.entries]


class GroupHarness(ReporterHarness):
    """A reporter with the registries A, B and C, which it prefers in this order."""

    def __init__(
        self,
        folder: Path,
        *,
        urls: Sequence[str] = URLS,
        max_silence_seconds: float = 3600,
        backoff: Backoff | None = None,
    ) -> None:
        registries = {url: FakeRegistry(url) for url in urls}
        super().__init__(
            folder, registries=registries, max_silence_seconds=max_silence_seconds, backoff=backoff
        )

    def asked(self) -> list[int]:
        """Return how often A, B and C were asked."""
        return [registry.reports for registry in self.registries.values()]

    async def settle(self, registry: FakeRegistry, heartbeats: int = 1) -> None:
        """Request a heartbeat, and wait until the registry has taken so many more."""
        before = len(registry.taken)
        self.reporter.request_report()
        await registry.until(lambda: len(registry.taken) >= before + heartbeats)

    def moves(self, url: str) -> float | None:
        """Return how often the agent left a registry."""
        return self.sample("rollcall_agent_registry_moves_total", url)

    def sample(self, name: str, url: str) -> float | None:
        """Return the value of a metric for a registry."""
        return self.metrics.get_sample_value(name, {"registry": url})
