"""Runs a fleet of simulated agents against real registries, optionally with a real Prometheus.

Each agent has a real reporter, failover, back-off and client, and a connection of its own; only the
host's content is made up. One registry has SQLite; several share a cluster of three NATS servers,
and each agent has the URLs of all of them. All traffic stays on 127.0.0.1, and the run ends by
itself.

    python bench/fleet.py --nodes 10000 --interval 30 --seconds 120 --kill-for 2 --prometheus --tls
    python bench/fleet.py --registries 3 --nodes 30000 --processes 2 --kill-for 60 --prometheus
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from jetstream_bench import pids_of
from load.probe import Probe, ProbeOptions
from load.registry_load import KEY
from load.simulators import Access, Simulators, hostname, percentiles
from processes import cpu_seconds, resident_mib, unused_port, write_settings
from registry_bench import PROGRAM

from dev.waiting import until
from tests.support.certificates import Authority, Pair
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.registry.nats.servers import NatsCluster

NATS_SERVERS = 3
START_SECONDS = 600.0
TARGETS_SECONDS = 300.0
AIM_SECONDS = 45.0
# To count those that are not fresh takes time of the simulator itself.
NODES_LOOKED_AT_A_SECOND = 100_000


class Trust:
    """The certificates of a run. With ``mutual``, each host presents one for its hostname.

    ``verify`` and ``cert`` are arguments for ``requests``.
    """

    def __init__(self, folder: Path, *, tls: bool, mutual: bool) -> None:
        self._folder = folder
        self._mutual = mutual
        self._authority: Authority | None = None
        self._pair: Pair | None = None
        if tls or mutual:
            self._authority = Authority(folder)
            self._pair = self._authority.issue("127.0.0.1", "probe.fleet.test")

    @property
    def scheme(self) -> str:
        """The scheme of a registry's URL."""
        return "https" if self._authority else "http"

    @property
    def verify(self) -> str:
        """The path of the CA, or empty."""
        return str(self._authority.ca) if self._authority else ""

    @property
    def cert(self) -> tuple[str, str] | None:
        """The paths of the certificate and its key."""
        return (str(self._pair.certificate), str(self._pair.key)) if self._pair else None

    def settings(self) -> Mapping[str, object]:
        """Return the settings of a registry."""
        if self.cert is None:
            return {}
        client_ca = {"client_ca": self.verify} if self._mutual else {}
        return {"tls": {"certificate": self.cert[0], "key": self.cert[1], **client_ca}}

    def scraper_tls(self) -> dict[str, str]:
        """Return the ``tls_config`` for a Prometheus that scrapes a registry."""
        certificate, key = self.cert or ("", "")
        return {"ca_file": self.verify, "cert_file": certificate, "key_file": key}

    def access(self, urls: Sequence[str], nodes: int) -> Access:
        """Return how hosts reach the registries; make their certificates."""
        if self._authority is None:
            return Access(urls=urls, key=KEY, ca=None, certificates=None)
        if self._mutual:
            for number in range(nodes):
                self._authority.issue(hostname(number))
        certificates = self._folder if self._mutual else None
        return Access(urls=urls, key=KEY, ca=self._authority.ca, certificates=certificates)


class RegistryProcess:
    """A registry under test, in a process of its own."""

    def __init__(self, folder: Path, trust: Trust, store: Mapping[str, object]) -> None:
        port = unused_port()
        self.url = f"{trust.scheme}://127.0.0.1:{port}"
        self._trust = trust
        self._config = write_settings(
            folder / f"registry-{port}.yml",
            port,
            # The probe changes its node several times a second.
            nodes={"warm_up_seconds": 0, "changes_per_minute": 0},
            log={"level": "warning"},
            **store,
            **trust.settings(),
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the registry and wait until it accepts heartbeats."""
        self._process = subprocess.Popen([PROGRAM, "--config", self._config])
        until(self._healthy, "the registry", within=60)

    def _healthy(self) -> bool:
        try:
            return self._get("/healthz", {}).ok
        except requests.RequestException:
            return False

    def kill(self) -> None:
        """Kill the registry with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def fresh(self, seconds: float) -> int:
        """Return how many nodes have sent a heartbeat in the last ``seconds``."""
        header = {"Authorization": f"Bearer {KEY}"}
        asked = {"max_age": f"{seconds:g}"}
        return len(self._get("/nodes", header, asked).json())

    def _get(
        self, path: str, header: Mapping[str, str], asked: Mapping[str, str] | None = None
    ) -> requests.Response:
        return requests.get(
            f"{self.url}{path}",
            params=asked,
            headers=header,
            timeout=60,
            verify=self._trust.verify or True,
            cert=self._trust.cert,
        )


@contextmanager
def running_registries(
    options: argparse.Namespace, folder: Path, trust: Trust
) -> Iterator[tuple[list[RegistryProcess], list[int]]]:
    """Run the registries; yield them, and the process ids of the NATS servers."""
    several = options.registries > 1
    nats = NatsCluster(folder=folder / "nats", free_port=unused_port, size=NATS_SERVERS)
    with nats if several else nullcontext() as cluster:
        store: dict[str, object] = {"store": f"sqlite:///{folder}/registry.db"}
        if cluster:
            store = {"store": cluster.url(), "nats": dict(cluster.settings())}
        registries = [RegistryProcess(folder, trust, store) for _ in range(options.registries)]
        try:
            for registry in registries:
                registry.start()
            yield registries, pids_of(cluster) if cluster else []
        finally:
            for registry in registries:
                registry.kill()


class TargetCounter:
    """Reads every second how many targets Prometheus has."""

    def __init__(self, server: Prometheus) -> None:
        self.least: int | None = None
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def targets(self) -> int:
        """Return how many targets Prometheus has."""
        for line in requests.get(f"{self._server.base_url}/metrics", timeout=30).text.splitlines():
            if line.startswith('prometheus_target_scrape_pool_targets{scrape_job="fleet"}'):
                return int(float(line.rpartition(" ")[2]))
        return 0

    def start(self) -> None:
        """Record the smallest number of targets from now on."""
        self._thread.start()

    def end(self) -> None:
        """Stop recording."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(1):
            found = self.targets()
            self.least = found if self.least is None else min(self.least, found)


class Usage:
    """The CPU time that groups of processes use from now on, and their memory."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._spent = {pid: cpu_seconds(pid) for group in pids.values() for pid in group}
        self._busy = busy_seconds()

    def report(self) -> None:
        """Print the use of each process, and that of the whole machine."""
        seconds = time.monotonic() - self._began
        for name, pids in self._pids.items():
            shares = [(cpu_seconds(pid) - self._spent[pid]) / seconds for pid in pids]
            print(
                f"  {name:<21} {', '.join(f'{share:.1%}' for share in shares)} of a core,"
                f" {', '.join(str(resident_mib(pid)) for pid in pids)} MiB"
            )
        busy = (busy_seconds() - self._busy) / seconds
        print(f"  the machine           {busy:.2f} of {os.cpu_count()} cores are busy")


def busy_seconds() -> float:
    """Return the CPU time that the machine has spent, in seconds, except on idling."""
    fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _iowait, *others = (int(field) for field in fields)
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


class Run:
    """What is measured: the registries, and the fleet with its probe."""

    def __init__(
        self,
        options: argparse.Namespace,
        registries: Sequence[RegistryProcess],
        simulators: Simulators,
        probe: Probe,
        servers: Mapping[str, Sequence[int]],
    ) -> None:
        """`servers` are the process ids of what is behind and beside the registries, by name."""
        self._options = options
        self._registries = registries
        self._simulators = simulators
        self._probe = probe
        self._servers = servers

    def measure_steady(self) -> None:
        """Measure the fleet in normal operation."""
        self._reset()
        usage, began = self._usage(self._registries), time.monotonic()
        time.sleep(self._options.seconds)
        ended = time.monotonic()
        print(f"steady for {ended - began:.0f} s")
        self._report(began, ended, usage)
        fresh = [one.fresh(self._options.interval * 1.2) for one in self._registries]
        print(f"  fresh                 {_listed(fresh)} of {self._options.nodes}", flush=True)

    def measure_restart(self) -> None:
        """Kill a registry, start it again, and measure until every host is fresh.

        Where other registries are left, that is from the kill on, and the registry comes back
        after that.
        """
        killed, *left = self._registries
        self._reset()
        began = time.monotonic()
        killed.kill()
        if not left:
            self._start_again(killed, began)
        since = time.monotonic()
        usage = self._usage(left or [killed])
        silent = self._watch_return(since, "the kill" if left else "its first answer")
        print(f"  did not come back     {silent}")
        self._report(since, time.monotonic() + 1, usage)
        if left:
            fresh = [one.fresh(time.monotonic() - since) for one in left]
            print(f"  fresh since the kill  {_listed(fresh)} of {self._options.nodes}")
            self._start_again(killed, began)

    def _watch_return(self, since: float, point: str) -> int:
        """Wait until all hosts are fresh, or for `--patience`; print when how many were.

        Return how many are not.
        """
        nodes: int = self._options.nodes
        patience: float = self._options.patience
        silent, passed, aim = nodes, 0.0, 0
        most: float | None = None
        while silent and passed < patience:
            time.sleep(max(0.1, nodes / NODES_LOOKED_AT_A_SECOND))
            silent = self._simulators.silent(since)
            passed = time.monotonic() - since
            if passed <= AIM_SECONDS:
                aim = nodes - silent
            if most is None and silent <= nodes / 100:
                most = passed
        print(
            f"all fresh again {_after(None if silent else passed, patience)} {point}, 99 %"
            f" {_after(most, patience)} it; {aim} of {nodes} within {AIM_SECONDS:.0f} s",
            flush=True,
        )
        return silent

    def _start_again(self, killed: RegistryProcess, killed_at: float) -> None:
        time.sleep(max(0.0, killed_at + self._options.kill_for - time.monotonic()))
        killed.start()
        print(f"killed, away for {time.monotonic() - killed_at:.1f} s", flush=True)

    def _usage(self, registries: Sequence[RegistryProcess]) -> Usage:
        pids = {"the registries": [one.pid for one in registries]}
        return Usage({**pids, **self._servers, "the simulator": self._simulators.pids})

    def _reset(self) -> None:
        self._probe.attempts()
        self._simulators.take()

    def _report(self, began: float, ended: float, usage: Usage) -> None:
        usage.report()
        tally, hosts = self._simulators.take()
        tally.report(began, ended, interval=self._options.interval, nodes=self._options.nodes)
        latencies, rejected = self._probe.attempts()
        print(f"  answer to the probe   {percentiles(latencies)}; {rejected} rejected")
        print(f"  hosts                 {_listed([hosts[one.url] for one in self._registries])}")


def _after(seconds: float | None, patience: float) -> str:
    return f"not within {patience:.0f} s after" if seconds is None else f"{seconds:.1f} s after"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def prometheus_config(
    options: argparse.Namespace, registries: Sequence[RegistryProcess], trust: Trust
) -> dict[str, object]:
    """Return the settings of a Prometheus that discovers the fleet and hardly ever scrapes it."""
    discoveries = [
        {
            "url": f"{registry.url}/prometheus/fleet",
            "refresh_interval": f"{options.refresh}s",
            "authorization": {"credentials": KEY},
            "tls_config": trust.scraper_tls(),
        }
        for registry in registries
    ]
    job = {"job_name": "fleet", "scrape_interval": "30m", "http_sd_configs": discoveries}
    return {"scrape_configs": [job]}


def run(options: argparse.Namespace, folder: Path) -> None:
    """Start the registries and the fleet, and measure."""
    trust = Trust(folder / "ca", tls=options.tls, mutual=options.mutual)
    with ExitStack() as stack:
        registries, nats = stack.enter_context(running_registries(options, folder, trust))
        access = trust.access([registry.url for registry in registries], options.nodes)
        simulators = Simulators(options, access)
        stack.callback(simulators.end)
        until(lambda: simulators.silent(1) == 0, "the fleet", within=START_SECONDS)
        # The first registry is killed, so the last one is left.
        probe = Probe(ProbeOptions(registries[-1].url, KEY, trust.verify, trust.cert))
        stack.callback(probe.end)
        servers, counter = {"the NATS servers": nats} if nats else {}, None
        if options.prometheus:
            config = prometheus_config(options, registries[:2], trust)
            server = stack.enter_context(
                running_prometheus(config, folder=folder / "prometheus", port=unused_port())
            )
            servers["Prometheus"] = [server.pid]
            counter = TargetCounter(server)
            everybody = "all targets in Prometheus"
            until(lambda: counter.targets() >= options.nodes, everybody, within=TARGETS_SECONDS)
            stack.callback(counter.end)
            counter.start()
        time.sleep(3)
        measure(options, Run(options, registries, simulators, probe, servers))
        if counter is not None:
            print(f"Prometheus: never fewer than {counter.least} of {options.nodes} targets")


def measure(options: argparse.Namespace, run: Run) -> None:
    """Measure all phases."""
    run.measure_steady()
    if options.kill_for is not None:
        run.measure_restart()
        run.measure_steady()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--registries", type=int, default=1, help="more than one: on NATS")
    parser.add_argument("--processes", type=int, default=1, help="that simulate the fleet")
    parser.add_argument("--interval", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=60, help="of each steady phase")
    parser.add_argument("--restarts", type=float, default=1, help="hosts a second")
    parser.add_argument("--changes", type=float, default=2, help="hosts a second")
    parser.add_argument("--skew", type=float, default=0.01, help="of the hosts' clocks")
    parser.add_argument("--kill-for", type=float, help="kill a registry for so many seconds")
    parser.add_argument(
        "--patience", type=float, default=300, help="seconds until all are fresh again, at most"
    )
    parser.add_argument("--tls", action="store_true", help="serve by HTTPS")
    parser.add_argument("--mutual", action="store_true", help="and hosts show certificates")
    parser.add_argument("--prometheus", action="store_true", help="put a real one beside it")
    parser.add_argument("--refresh", type=int, default=5, help="how often it asks, in seconds")
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


if __name__ == "__main__":
    main()
