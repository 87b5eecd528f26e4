"""Processes that simulate a part of the fleet each, since a process works on one core."""

import argparse
import asyncio
import functools
import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agent.reporting.connections import RegistryConnection, RegistryGroup
from clients.registry import RegistryClient
from clients.tls import ClientTls
from load.simulated import Fleet, Tally


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
        connections = [
            RegistryConnection(url, RegistryClient(url=url, key=lambda: self.key, client_tls=tls))
            for url in self.urls
        ]
        return RegistryGroup(connections=connections, key=lambda: self.key, client_tls=tls)


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
