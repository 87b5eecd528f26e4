"""Simulated hosts, and processes that simulate a part of the fleet each, on one core."""

import argparse
import asyncio
import functools
import gc
import multiprocessing
import random
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import structlog

from agent.reporting.connections import RegistryGroup
from agent.reporting.failover import Failover
from agent.reporting.reporter import Reporter, ReportTiming
from agent.reporting.status import HeartbeatRecorder
from agent.state.identity import Identity
from agent.state.lock import Deregistration
from clients.errors import RegistryError
from clients.message import Heartbeat
from clients.registry import RegistryClient
from clients.tls import ClientTls
from runtime.pauses import Backoff


def percentiles(seconds: list[float]) -> str:
    """Return p50, p90, p99 and the maximum as text, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    shown = {p: ordered[max(0, int(len(ordered) * p / 100) - 1)] for p in (50, 90, 99, 100)}
    return ", ".join(f"p{p} {value * 1000:.1f} ms" for p, value in shown.items())


class Tally:
    """Counts attempts, accepted heartbeats and failures by second, and their latencies.

    ``failures`` are those of attempts that no registry accepted; ``moves`` are the attempts that
    another registry accepted when the host's own failed.
    """

    def __init__(self) -> None:
        self.attempts: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.moves = 0
        self.latencies: list[float] = []
        self.longest_silence = 0.0
        self.longest_stall = 0.0

    async def measure_stalls(self) -> None:
        """Measure the longest delay of the simulator's own event loop, until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.05)
            self.longest_stall = max(self.longest_stall, time.monotonic() - began - 0.05)

    def add(self, other: Self) -> None:
        """Add the counts of another one."""
        self.attempts += other.attempts
        self.taken += other.taken
        self.failures += other.failures
        self.moves += other.moves
        self.latencies += other.latencies
        self.longest_silence = max(self.longest_silence, other.longest_silence)
        self.longest_stall = max(self.longest_stall, other.longest_stall)

    def reset(self) -> None:
        """Forget all but the counts by second."""
        self.failures.clear()
        self.latencies.clear()
        self.moves = 0
        self.longest_silence = 0.0
        self.longest_stall = 0.0

    def report(self, since: float, until: float, *, interval: float, nodes: int) -> None:
        """Print the counts between two monotonic times."""
        seconds = range(int(since), int(until))
        steady = nodes / interval
        peak = max((self.attempts[second] for second in seconds), default=0)
        print(f"  heartbeats taken      {sum(self.taken[s] for s in seconds)}")
        print(f"  failed attempts       {dict(self.failures) or 'none'}")
        print(f"  taken by another      {self.moves}")
        print(f"  attempts a second     peak {peak}, {peak / steady:.2f} x the steady {steady:.0f}")
        if self.latencies:
            print(f"  answer                {percentiles(self.latencies)}")
        print(f"  longest silence       {self.longest_silence:.1f} s between a host's heartbeats")
        print(f"  the simulator stalled {self.longest_stall:.2f} s at most")


class FleetRecorder(HeartbeatRecorder):
    """Counts for the whole fleet, where an agent's recorder has log, metrics and a file."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.taken_at = 0.0
        self.url = ""

    def taken(self, url: str, seconds: float, failures: Mapping[str, RegistryError]) -> None:
        """Count an accepted heartbeat."""
        now = time.monotonic()
        self.url = url
        self.tally.moves += bool(failures)
        self.tally.taken[int(now)] += 1
        self.tally.latencies.append(seconds)
        if self.taken_at:
            self.tally.longest_silence = max(self.tally.longest_silence, now - self.taken_at)
        self.taken_at = now

    def failed(self, failures: Mapping[str, RegistryError]) -> None:
        """Count a failed heartbeat."""
        self.tally.failures.update(failure.kind for failure in failures.values())

    def broken(self, error: Exception) -> None:
        """Print a defect, after which the reporter goes on."""
        traceback.print_exception(error)


class NullIdentity(Identity):
    """Stands for the identity, which is files on a real host."""

    def __init__(self) -> None:
        pass

    def claim(self, *_: str) -> None:
        """Do nothing."""

    def has_name(self, *_: str) -> bool:
        """Return True: no name is given up after a rejected heartbeat."""
        return True

    def other_names(self, *_: str) -> list[str]:
        """Return an empty list."""
        return []


class NullDeregistration(Deregistration):
    """Stands for the deregistration, which is files on a real host."""

    def __init__(self) -> None:
        pass

    def is_deregistered(self) -> bool:
        """Return False."""
        return False

    @contextmanager
    def permit(self) -> Iterator[bool]:
        """Yield True: the host is not deregistered."""
        yield True


def hostname(number: int) -> str:
    """Return the name of a simulated host."""
    return f"node-{number:06}.fleet.test"


class SimulatedAgent:
    """A simulated host with a clock that is slightly fast or slow, and a random phase."""

    def __init__(
        self,
        number: int,
        options: argparse.Namespace,
        tally: Tally,
        group: Callable[[str], RegistryGroup],
    ) -> None:
        self.number = number
        self.changes = 0
        self.recorder = FleetRecorder(tally)
        self._options = options
        self._group = group
        self._hostname = hostname(number)
        self._rate = random.uniform(1 - options.skew, 1 + options.skew)
        self._id = secrets.token_hex(16)
        self._reporter: Reporter | None = None

    async def heartbeat(self, _within_seconds: float | None) -> Heartbeat:
        """Count an attempt, and return a heartbeat as large as that of a host with two apps."""
        self.recorder.tally.attempts[int(time.monotonic())] += 1
        address = f"127.0.{self.number // 250}.{self.number % 250 + 1}"
        labels = ["service:web", f"rack:r{self.number % 40}", f"release:{self.changes}"]
        labels += ["prometheus:fleet:port:9", f"prometheus:fleet:host:{address}"]
        for app in ("shop", "blog"):
            labels += [
                f"app:{app}",
                f"prometheus:http@{app}:port:2000",
                f"prometheus:http@{app}:app:{app}",
            ]
        kv = {"agent.id": self._id, "agent.url": f"http://{address}:7656", "agent.version": "0"}
        kv |= {"host.os": "Debian GNU/Linux 12 (bookworm)", "host.kernel": "6.1.0-18-amd64"}
        kv |= {"host.arch": "x86_64", "host.cpus": "2", "host.memory_mib": "3935"}
        kv |= {"docker.version": "20.10.24", "docker.state": "running", "apps.total": "2"}
        return Heartbeat(labels=labels, kv=kv | {"apps.running": "2"})

    def change(self) -> None:
        """Change a label, and request a report."""
        self.changes += 1
        if self._reporter is not None:
            self._reporter.request_report()

    async def run_until_cancelled(self) -> None:
        """Report at each interval until cancelled."""
        interval = self._options.interval / self._rate
        async with AsyncExitStack() as stack:
            group = self._group(self._hostname).ordered_for(self._id)
            for client in group.clients:
                await stack.enter_async_context(client)
            self._reporter = self._new_reporter(group, interval)
            run = asyncio.create_task(self._reporter.run())
            try:
                due = time.monotonic() + random.uniform(0, interval)
                while True:
                    await asyncio.sleep(max(0, due - time.monotonic()))
                    self._reporter.request_report()
                    due += interval
            finally:
                run.cancel()
                with suppress(asyncio.CancelledError):
                    await run

    def _new_reporter(self, group: RegistryGroup, interval: float) -> Reporter:
        return Reporter(
            failover=Failover(
                group=group,
                hostname=self._hostname,
                identity=NullIdentity(),
                recorder=self.recorder,
                log=structlog.get_logger(),
            ),
            heartbeat=self.heartbeat,
            deregistration=NullDeregistration(),
            timing=ReportTiming(
                max_silence_seconds=interval + 1,
                backoff=Backoff(max_seconds=self._options.interval, random=random.SystemRandom()),
            ),
        )


class Fleet:
    """Simulated hosts of these numbers; some restart or change at random."""

    def __init__(
        self,
        options: argparse.Namespace,
        numbers: Sequence[int],
        tally: Tally,
        group: Callable[[str], RegistryGroup],
    ) -> None:
        self._agents = [SimulatedAgent(number, options, tally, group) for number in numbers]
        self._tasks: list[asyncio.Task[None]] = []
        self._options = options
        self._share = len(numbers) / options.nodes

    async def start(self) -> None:
        """Start all hosts, spread over one heartbeat."""
        for agent in self._agents:
            self._tasks.append(asyncio.create_task(agent.run_until_cancelled()))
            await asyncio.sleep(self._options.interval / len(self._agents))

    async def churn(self) -> None:
        """Restart and change hosts at random until cancelled."""
        while True:
            await asyncio.sleep(1 / self._share)
            for _ in range(round(self._options.restarts)):
                number = random.randrange(len(self._agents))
                self._tasks[number].cancel()
                self._tasks[number] = asyncio.create_task(
                    self._agents[number].run_until_cancelled()
                )
            for _ in range(round(self._options.changes)):
                random.choice(self._agents).change()

    def silent(self, since: float) -> int:
        """Return how many hosts had no heartbeat accepted since a monotonic time."""
        return sum(agent.recorder.taken_at < since for agent in self._agents)

    def hosts_by_url(self) -> Counter[str]:
        """Return how many hosts had their last heartbeat accepted by each registry."""
        return Counter(agent.recorder.url for agent in self._agents)

    async def stop(self) -> None:
        """Stop all hosts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True, kw_only=True)
class Access:
    """How hosts reach the registries.

    ``ca`` is the CA of the registries, None without TLS. ``certificates`` is a folder with a
    certificate for each host, None if hosts have none.
    """

    urls: Sequence[str]
    key: str
    ca: Path | None
    certificates: Path | None

    def group(self, hostname: str) -> RegistryGroup:
        """Return the connections of one host."""
        tls = ClientTls(ca=self.ca)
        if self.certificates is not None:
            stem = self.certificates / hostname
            tls = ClientTls(ca=self.ca, certificate=Path(f"{stem}.crt"), key=Path(f"{stem}.key"))
        clients = [
            RegistryClient(url=url, key=lambda: self.key, client_tls=tls) for url in self.urls
        ]
        return RegistryGroup(clients=clients, key=lambda: self.key, client_tls=tls)


@dataclass(frozen=True)
class Part:
    """What one process simulates: the hosts with these numbers."""

    options: argparse.Namespace
    numbers: range
    access: Access


class Simulators:
    """A fleet in one or several processes, as equal parts."""

    def __init__(self, options: argparse.Namespace, access: Access) -> None:
        count = options.processes
        self._pipes: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        for number in range(count):
            ours, theirs = multiprocessing.Pipe()
            part = Part(options, range(number, options.nodes, count), access)
            process = multiprocessing.get_context("spawn").Process(
                target=simulate, args=(part, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid or 0 for process in self._processes]

    def silent(self, since: float) -> int:
        """Return how many hosts had no heartbeat accepted since a monotonic time."""
        answers: list[int] = self._ask(since)
        return sum(answers)

    def take(self) -> tuple[Tally, Counter[str]]:
        """Return the counts since the last call, and how many hosts each registry has now."""
        tally, hosts = Tally(), Counter[str]()
        answers: list[tuple[Tally, Counter[str]]] = self._ask(None)
        for part, hosts_of_part in answers:
            tally.add(part)
            hosts += hosts_of_part
        return tally, hosts

    def _ask(self, request: float | None) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(request)
        return [pipe.recv() for pipe in self._pipes]

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.join()


def simulate(part: Part, pipe: Connection) -> None:
    """Simulate a part of the fleet until terminated, and answer requests."""
    asyncio.run(_simulate(part, pipe))


async def _simulate(part: Part, pipe: Connection) -> None:
    tally = Tally()
    fleet = Fleet(part.options, part.numbers, tally, part.access.group)
    ended = asyncio.Event()
    answer = functools.partial(_answer, pipe, fleet, tally, ended.set)
    asyncio.get_running_loop().add_reader(pipe.fileno(), answer)
    await fleet.start()
    gc.freeze()  # keeps the garbage collector from traversing ten thousand hosts
    own = [asyncio.create_task(task) for task in (fleet.churn(), tally.measure_stalls())]
    await ended.wait()
    for task in own:
        task.cancel()
    await fleet.stop()


def _answer(pipe: Connection, fleet: Fleet, tally: Tally, end: Callable[[], None]) -> None:
    """Answer one request: the counts, or how many hosts are silent since a time."""
    try:
        since = pipe.recv()
    except EOFError:  # the benchmark has ended
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        end()
        return
    if since is None:
        pipe.send((tally, fleet.hosts_by_url()))
        tally.reset()
    else:
        pipe.send(fleet.silent(since))
