"""Many hosts in one process: reporters with real clients, each of which uses one of a group."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from time import time

import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger, LogCapture

from agent.reporting.connections import RegistryGroup
from agent.reporting.failover import Failover
from agent.reporting.reporter import Reporter, Reporters, ReportTiming
from agent.reporting.status import HeartbeatMetrics, HeartbeatRecorder, RegistryStatus
from agent.settings import MAX_REQUEST_SECONDS
from agent.state.identity import Identity
from agent.state.lock import Deregistration
from clients.message import Heartbeat
from clients.registry import RegistryClient, Timeouts
from runtime.pauses import Backoff
from tests.support.waiting import async_until

MOVED = "moved to another registry"


class SimulatedHost:
    """A host that reports every ``seconds``. Its requests have the time limit of real agents."""

    def __init__(self, folder: Path, urls: Sequence[str], *, key: str, seconds: float) -> None:
        folder.mkdir(parents=True)
        self.name = folder.name
        self.lines = LogCapture()
        self.taken = 0
        self._identity = Identity(directory=folder, machine=None)
        clients = [
            RegistryClient(url=url, key=lambda: key, timeouts=Timeouts(MAX_REQUEST_SECONDS))
            for url in urls
        ]
        self.clients = clients
        group = RegistryGroup(clients=clients, key=lambda: key, client_tls=None)
        group = group.ordered_for(self._identity.id)
        log = structlog.wrap_logger(CapturingLogger(), processors=[self.lines])
        self._statuses = [
            RegistryStatus(url=url, alternatives=others) for url, others in group.alternatives()
        ]
        recorder = HeartbeatRecorder(
            statuses=self._statuses,
            metrics=HeartbeatMetrics(CollectorRegistry()),
            clock=time,
            on_change=self._count,
            log=log,
        )
        self.failover = Failover(
            group=group, hostname=self.name, identity=self._identity, recorder=recorder, log=log
        )
        # It writes to the disk, which would hold up all hosts of this process.
        self.failover.claim()
        self.reporter = Reporter(
            failover=self.failover,
            heartbeat=self._heartbeat,
            deregistration=Deregistration(directory=folder),
            timing=ReportTiming(
                max_silence_seconds=seconds,
                backoff=Backoff(max_seconds=seconds, random=Random(self.name)),
            ),
        )

    @property
    def moves(self) -> int:
        """How often the host moved to another registry."""
        return sum(line["event"] == MOVED for line in self.lines.entries)

    def _count(self) -> None:
        self.taken += any(each.current and each.state == "taken" for each in self._statuses)

    async def _heartbeat(self, _within_seconds: float | None) -> Heartbeat:
        return Heartbeat(labels=["service:web"], kv={"agent.id": self._identity.id})


class SimulatedFleet:
    """Some hosts with a group of registries."""

    def __init__(
        self, folder: Path, urls: Sequence[str], *, count: int, key: str, seconds: float
    ) -> None:
        self.hosts = [
            SimulatedHost(folder / f"host-{number}", urls, key=key, seconds=seconds)
            for number in range(count)
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report for all hosts while the context is open."""
        reporters = Reporters()
        async with AsyncExitStack() as stack:
            for host in self.hosts:
                for client in host.clients:
                    await stack.enter_async_context(client)
            reporters.start([host.reporter for host in self.hosts])
            stack.push_async_callback(reporters.stop)
            yield

    def spread(self) -> Counter[str]:
        """Return how many hosts use each registry."""
        return Counter(host.failover.url for host in self.hosts)

    def moves(self) -> Counter[str]:
        """Return how often each host moved to another registry."""
        return Counter({host.name: host.moves for host in self.hosts})

    async def until_taken(self, heartbeats: int, *, within: float = 120) -> None:
        """Wait until so many further heartbeats of each host were taken."""
        goals = [(host, host.taken + heartbeats) for host in self.hosts]

        async def reached() -> bool:
            return all(host.taken >= goal for host, goal in goals)

        await async_until(reached, within=within)
