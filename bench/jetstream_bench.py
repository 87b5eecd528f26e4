"""Compares registries on NATS JetStream with one on SQLite, with one another, and with etcd.

Both sides of a row are measured alternately, in one run; the result is the median of the ratios,
of the rate and of the CPU time for each answer of all processes of a side. The servers of NATS sync
each write. All traffic stays on 127.0.0.1, and the run ends by itself.

    python bench/jetstream_bench.py               # some ten minutes
    python bench/jetstream_bench.py --only host   # one part
"""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.registry_load import KEY, Result, Wrk
from processes import (
    cpu_seconds,
    etcd_cluster,
    process,
    resident_mib,
    started,
    wait_for,
    write_settings,
)
from registry_bench import PROGRAM, RULES

from dev.waiting import until
from tests.support.registry.nats.servers import NatsCluster

PORTS = itertools.count(28700)
CONNECTIONS = 128
SIZE = 3
FLEET = 100_000
HOSTS = 1000  # of each registry
FILLED_A_SECOND = 1600
SOON_SECONDS = 60.0
KINDS = {"unchanged": 1, "changed": 2}


def next_port() -> int:
    """Return a port that the benchmark has not used yet."""
    return next(PORTS)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is measured: the ports that get a part of the load each, and the processes behind them.

    `registries` and `servers` are process ids, the latter those of NATS or etcd; `kind` is that of
    the requests.
    """

    name: str
    ports: Sequence[int]
    registries: Sequence[int] = ()
    servers: Sequence[int] = ()
    kind: str = "node"


class Measured(NamedTuple):
    """A rate, the CPU time in microseconds for each answer, and the number of bad answers."""

    rate: float
    registries: float
    servers: float
    bad: int

    @property
    def cpu(self) -> float:
        """The CPU time for each answer of all processes."""
        return self.registries + self.servers


class Bench:
    """A run: its folder, load generator, rounds, kinds of heartbeats and nodes of the start."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self._rounds: int = options.rounds
        self._kinds: Sequence[str] = [options.kind] if options.kind else [*KINDS]
        self.fleet: int = options.nodes
        self.wrk = Wrk(folder, seconds=options.seconds)

    @contextmanager
    def servers(self, size: int = 1, sync: str = "always") -> Iterator[NatsCluster]:
        """Run a server of NATS, or a cluster."""
        folder = self.folder / f"nats-{next_port()}"
        with NatsCluster(folder=folder, free_port=next_port, size=size, sync=sync) as cluster:
            yield cluster

    def settings(self, port: int, store: Mapping[str, object]) -> Path:
        """Return the settings file of a registry."""
        file = self.folder / f"registry-{port}-{next_port()}.yml"
        return write_settings(file, port, nodes=dict(RULES), **store)

    @contextmanager
    def registry(self, port: int, store: Mapping[str, object]) -> Iterator[int]:
        """Run a registry; yield its process id."""
        command = PROGRAM, "--config", self.settings(port, store)
        with process(command, f"http://127.0.0.1:{port}/healthz") as server:
            yield server.pid

    @contextmanager
    def on_nats(self, name: str, cluster: NatsCluster, count: int = 1) -> Iterator[Side]:
        """Run registries on a bucket of their own, each with a port of its own."""
        ports = [next_port() for _ in range(count)]
        store = {"store": cluster.url(f"bench-{ports[0]}"), "nats": dict(cluster.settings())}
        with ExitStack() as stack:
            pids = [stack.enter_context(self.registry(port, store)) for port in ports]
            yield Side(name=name, ports=ports, registries=pids, servers=pids_of(cluster))

    def compare(self, what: str, ours: Side, peer: Side) -> None:
        """Measure both alternately for each kind of heartbeats, and print the medians."""
        for kind in self._kinds:
            rounds = [
                (self._measure(ours, KINDS[kind]), self._measure(peer, KINDS[kind]))
                for _ in range(self._rounds)
            ]
            rates = [mine.rate / theirs.rate for mine, theirs in rounds]
            costs = [mine.cpu / theirs.cpu for mine, theirs in rounds]
            print(
                f"| {what}, {kind} | {_shown([mine for mine, _ in rounds])}"
                f" | {_shown([theirs for _, theirs in rounds])}"
                f" | {_spread(rates)} | {_spread(costs)} | {os.getloadavg()[0]:.0f}"
                f" | {sum(one.bad for both in rounds for one in both)} |",
                flush=True,
            )

    def _measure(self, side: Side, bodies: int) -> Measured:
        before = [_cpu(pids) for pids in (side.registries, side.servers)]
        results = self._load(side, bodies)
        spent = [_cpu(pids) for pids in (side.registries, side.servers)]
        answers = sum(result.answers for result in results)
        registries, servers = (
            (after - earlier) / answers * 1e6 for after, earlier in zip(spent, before, strict=True)
        )
        rate = sum(result.rate for result in results)
        return Measured(rate, registries, servers, sum(result.bad for result in results))

    def _load(self, side: Side, bodies: int) -> list[Result]:
        """Send heartbeats to all ports at once, each of hosts of its own."""
        share = CONNECTIONS // len(side.ports)
        with ThreadPoolExecutor(len(side.ports)) as threads:
            running = [
                threads.submit(
                    self.wrk.posts,
                    port,
                    connections=share,
                    kind=side.kind,
                    bodies=bodies,
                    hosts=HOSTS,
                    first=number * HOSTS,
                )
                for number, port in enumerate(side.ports)
            ]
            return [one.result() for one in running]


def pids_of(cluster: NatsCluster) -> list[int]:
    """Return the process ids of the servers."""
    return [int((server.folder / "pid").read_text()) for server in cluster.servers]


def _cpu(pids: Sequence[int]) -> float:
    return sum(cpu_seconds(pid) for pid in pids)


def _shown(measured: Sequence[Measured]) -> str:
    rate, registries, servers = (
        statistics.median(values)
        for values in zip(
            *((one.rate, one.registries, one.servers) for one in measured), strict=True
        )
    )
    return f"{rate:,.0f}/s, {registries:.0f} + {servers:.0f} us"


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def sqlite(bench: Bench) -> None:
    """Compare a registry on one server with a registry on SQLite."""
    port = next_port()
    store = {"store": f"sqlite:///{bench.folder / 'sqlite.db'}"}
    with (
        bench.servers() as cluster,
        bench.on_nats("one server", cluster) as ours,
        bench.registry(port, store) as pid,
    ):
        peer = Side(name="SQLite", ports=[port], registries=[pid])
        bench.compare("one registry on one server; on SQLite", ours, peer)


def host(bench: Bench) -> None:
    """Compare two registries that share an address with one."""
    shared = next_port()
    with ExitStack() as stack:
        cluster = stack.enter_context(bench.servers())
        one = stack.enter_context(bench.on_nats("one", cluster))
        store = {"store": cluster.url("shared"), "nats": dict(cluster.settings())}
        store["shared_listen"] = f"127.0.0.1:{shared}"
        pids = [stack.enter_context(bench.registry(next_port(), store)) for _ in range(2)]
        two = Side(name="two", ports=[shared], registries=pids, servers=pids_of(cluster))
        bench.compare("two registries at one address; one registry", two, one)


def three(bench: Bench) -> None:
    """Compare three registries on three servers with one of each, and with three of etcd."""
    with ExitStack() as stack:
        single = stack.enter_context(bench.servers())
        cluster = stack.enter_context(bench.servers(SIZE))
        one = stack.enter_context(bench.on_nats("one", single))
        ours = stack.enter_context(bench.on_nats("three", cluster, SIZE))
        ports, pids = stack.enter_context(etcd_cluster(bench.folder / "etcd", next_port, SIZE))
        peer = Side(name="etcd", ports=ports, servers=pids, kind="etcd")
        bench.compare("three registries on three servers; one of each", ours, one)
        bench.compare("three registries on three servers; three of etcd", ours, peer)


def load(bench: Bench) -> None:
    """Measure the start of a registry on a bucket with many nodes."""
    fleet, filling = bench.fleet, max(1, bench.fleet // FILLED_A_SECOND)
    with bench.servers(sync="2m") as cluster:  # only while the bucket is filled that matters
        nats = {**cluster.settings(), "accept_loss": True}
        store = {"store": cluster.url("load"), "nats": nats}
        port = next_port()
        with bench.registry(port, store):
            while nodes(port) < fleet:  # those that are there are soon passed
                bench.wrk.posts(port, connections=CONNECTIONS, hosts=fleet, seconds=filling)
        port = next_port()
        began = time.monotonic()
        url = f"http://127.0.0.1:{port}"
        with started([PROGRAM, "--config", bench.settings(port, store)], url) as server:
            wait_for(server, f"{url}/nodes/host-000001.example.com")
            seconds, spent = time.monotonic() - began, cpu_seconds(server.pid)
            until(lambda: nodes(port) == fleet, "all nodes", within=SOON_SECONDS)
            print(
                f"| start with {fleet:,} nodes | {seconds:.1f} s, {spent:.1f} s of CPU time,"
                f" {resident_mib(server.pid)} MiB; {_stored(cluster)} | | | |"
                f" {os.getloadavg()[0]:.0f} | 0 |",
                flush=True,
            )


def _stored(cluster: NatsCluster) -> str:
    """Return what the servers use."""
    memory = sum(resident_mib(pid) for pid in pids_of(cluster))
    stored = sum(
        requests.get(f"{server.monitoring}/jsz", timeout=60).json()["storage"]
        for server in cluster.servers
    )
    return f"the NATS server {memory} MiB, {stored >> 20} MiB stored"


def nodes(port: int) -> int:
    """Return how many nodes a registry has."""
    answer = requests.get(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": KEY}, timeout=60
    )
    answer.raise_for_status()
    found = [
        line for line in answer.text.splitlines() if line.startswith("rollcall_registry_nodes{")
    ]
    return int(sum(float(line.rpartition(" ")[2]) for line in found))


def main() -> None:
    """Run all parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts: dict[str, Callable[[Bench], None]] = {
        "sqlite": sqlite,
        "host": host,
        "three": three,
        "load": load,
    }
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--kind", choices=KINDS, help="only one kind of heartbeats")
    parser.add_argument("--nodes", type=int, default=FLEET, help="in the bucket, for the start")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jetstream-bench-") as folder:
        bench = Bench(Path(folder), options)
        print("| what | rate, CPU: registries + servers | peer | of rate | of CPU | load | bad |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for name, part in parts.items():
            if options.only in {None, name}:
                part(bench)


if __name__ == "__main__":
    main()
