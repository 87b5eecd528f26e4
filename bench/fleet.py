"""Runs a fleet of simulated agents against a real registry, optionally with a real Prometheus.

Each agent has a real reporter, back-off and client, and a connection of its own; only the host's
content is made up. All traffic stays on 127.0.0.1, and the run ends by itself.

    python bench/fleet.py --nodes 10000 --interval 30 --seconds 120 --kill-for 2 --prometheus --tls
"""

import argparse
import asyncio
import functools
import gc
import os
import random
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import requests
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from probe import Probe, ProbeOptions
from simulated import Fleet, Tally, percentiles

from dev.waiting import until
from registry.client.client import ClientTls, RegistryClient
from tests.support.certificates import Authority
from tests.support.prometheus import running_prometheus

KEY = secrets.token_urlsafe(32)
TICKS = os.sysconf("SC_CLK_TCK")


def unused_port() -> int:
    """Return an unused port of 127.0.0.1, outside the range of outgoing connections."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no free port between 20000 and 30000")


class RegistryProcess:
    """The registry under test: a process with SQLite on a real disk.

    With ``mutual``, every client presents a certificate for its hostname. ``verify`` and ``cert``
    are arguments for ``requests``.
    """

    def __init__(self, folder: Path, *, tls: bool, mutual: bool) -> None:
        port = unused_port()
        self.url = f"{'https' if tls or mutual else 'http'}://127.0.0.1:{port}"
        self.authority = Authority(folder / "ca") if tls or mutual else None
        self.verify = str(self.authority.ca) if self.authority else ""
        self.cert: tuple[str, str] | None = None
        self._config = folder / "registry.yml"
        key = {"name": "bench", "value": KEY, "allow": ["read", "write"]}
        settings = {"listen": f"127.0.0.1:{port}", "keys": [key], "nodes": {"warm_up_seconds": 0}}
        settings["store"] = f"sqlite:///{folder}/registry.db"
        if self.authority:
            pair = self.authority.issue("127.0.0.1", "probe.fleet.test")
            settings["tls"] = {"certificate": str(pair.certificate), "key": str(pair.key)}
            self.cert = str(pair.certificate), str(pair.key)
        if self.authority and mutual:
            settings["tls"]["client_ca"] = str(self.authority.ca)
        self._mutual = mutual
        self._client_tls = ClientTls(ca=self.authority.ca if self.authority else None)
        self._config.write_text(yaml.safe_dump(settings | {"log": {"level": "warning"}}))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the registry and wait until it accepts heartbeats."""
        program = Path(sys.executable).with_name("rollcall-registry")
        self.process = subprocess.Popen([program, "--config", self._config])
        until(self._healthy, "the registry", within=60)

    def _healthy(self) -> bool:
        try:
            return self._get("/healthz", {}).ok
        except requests.RequestException:
            return False

    def scraper_tls(self) -> dict[str, str]:
        """Return the ``tls_config`` for a Prometheus that scrapes it."""
        certificate, key = self.cert or ("", "")
        return {"ca_file": self.verify, "cert_file": certificate, "key_file": key}

    def kill(self) -> None:
        """Kill the registry with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the registry has used, in seconds."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> float:
        """Return the registry's resident memory in MiB."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

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
            verify=self.verify or True,
            cert=self.cert,
        )

    def client(self, hostname: str) -> RegistryClient:
        """Return a client for a host, with a certificate of its own if ``mutual``."""
        client_tls = self._client_tls
        if self._mutual and self.authority:
            pair = self.authority.issue(hostname)
            client_tls = ClientTls(ca=self.authority.ca, certificate=pair.certificate, key=pair.key)
        return RegistryClient(url=self.url, key=lambda: KEY, client_tls=client_tls)


class TargetCounter:
    """Reads every second how many targets Prometheus has."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.least: int | None = None

    def targets(self) -> int:
        """Return how many targets Prometheus has."""
        for line in requests.get(self.url, timeout=30).text.splitlines():
            if line.startswith('prometheus_target_scrape_pool_targets{scrape_job="fleet"}'):
                return int(float(line.rpartition(" ")[2]))
        return 0

    def has(self, targets: int) -> bool:
        """Return whether Prometheus has at least this many targets."""
        return self.targets() >= targets

    async def watch(self) -> None:
        """Record the smallest number of targets until cancelled."""
        while True:
            found = await asyncio.to_thread(self.targets)
            self.least = found if self.least is None else min(self.least, found)
            await asyncio.sleep(1)


async def measure_steady(
    options: argparse.Namespace, registry: RegistryProcess, tally: Tally, prober: Probe
) -> None:
    """Measure the fleet in normal operation."""
    prober.latencies()
    own = time.process_time()
    cpu, began = registry.cpu_seconds(), time.monotonic()
    await asyncio.sleep(options.seconds)
    ended = time.monotonic()
    share = (registry.cpu_seconds() - cpu) / (ended - began)
    print(f"steady for {ended - began:.0f} s")
    tally.report(began, ended, interval=options.interval, nodes=options.nodes)
    print(f"  answer to the probe   {percentiles(prober.latencies())}")
    print(f"  the simulator         {(time.process_time() - own) / (ended - began):.1%} of a core")
    print(f"  the registry          {share:.1%} of a core, {registry.memory_mib():.0f} MiB")
    fresh = await asyncio.to_thread(registry.fresh, options.interval * 1.2)
    print(f"  fresh                 {fresh} of {options.nodes}")


async def measure_restart(
    options: argparse.Namespace, registry: RegistryProcess, fleet: Fleet, tally: Tally
) -> None:
    """Kill the registry, start it again, and measure until every host is fresh."""
    began = time.monotonic()
    registry.kill()
    await asyncio.sleep(options.kill_for)
    await asyncio.to_thread(registry.start)
    back = time.monotonic()
    waiting = [agent.recorder for agent in fleet.agents]
    while waiting and time.monotonic() - back < 10 * options.interval:
        await asyncio.sleep(0.1)
        waiting = [recorder for recorder in waiting if recorder.taken_at < back]
    ended = time.monotonic()
    print(f"killed, away for {back - began:.1f} s")
    print(f"  did not come back     {len(waiting)}")
    print(f"  all fresh again       {ended - back:.1f} s after its first answer")
    tally.report(back, ended + 1, interval=options.interval, nodes=options.nodes)


def prometheus_config(registry: RegistryProcess) -> dict[str, object]:
    """Return the settings of a Prometheus that discovers the fleet and hardly ever scrapes it."""
    discovery = {
        "url": f"{registry.url}/prometheus/fleet",
        "refresh_interval": "5s",
        "authorization": {"credentials": KEY},
        "tls_config": registry.scraper_tls(),
    }
    job = {"job_name": "fleet", "scrape_interval": "30m", "http_sd_configs": [discovery]}
    return {"scrape_configs": [job]}


async def run(options: argparse.Namespace, folder: Path) -> None:
    """Start the registry, measure, and kill it."""
    registry = RegistryProcess(folder, tls=options.tls, mutual=options.mutual)
    tally = Tally()
    await asyncio.to_thread(registry.start)
    try:
        await measure(options, folder, registry, tally)
    finally:
        registry.kill()


async def measure(
    options: argparse.Namespace, folder: Path, registry: RegistryProcess, tally: Tally
) -> None:
    """Start the fleet, and measure."""
    fleet = Fleet(options, tally, registry.client)
    await fleet.start()
    await asyncio.sleep(3)
    gc.freeze()  # keeps the garbage collector from traversing ten thousand hosts
    prober = Probe(ProbeOptions(registry.url, KEY, registry.verify, registry.cert))
    restless = asyncio.create_task(fleet.churn())
    watching_itself = asyncio.create_task(tally.measure_stalls())
    with ExitStack() as stack:
        watcher = None
        if options.prometheus:
            port = unused_port()
            stack.enter_context(
                running_prometheus(
                    prometheus_config(registry), folder=folder / "prometheus", port=port
                )
            )
            watcher = TargetCounter(port)
            everybody = functools.partial(watcher.has, options.nodes)
            await asyncio.to_thread(until, everybody, "all targets in Prometheus", within=120)
            watching = asyncio.create_task(watcher.watch())
        tally.latencies.clear()
        await measure_steady(options, registry, tally, prober)
        if options.kill_for is not None:
            await measure_restart(options, registry, fleet, tally)
            await measure_steady(options, registry, tally, prober)
        if watcher is not None:
            watching.cancel()
            print(f"Prometheus: never fewer than {watcher.least} of {options.nodes} targets")
    prober.end()
    restless.cancel()
    watching_itself.cancel()
    await fleet.stop()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=60, help="of each steady phase")
    parser.add_argument("--restarts", type=float, default=1, help="hosts a second")
    parser.add_argument("--changes", type=float, default=2, help="hosts a second")
    parser.add_argument("--skew", type=float, default=0.01, help="of the hosts' clocks")
    parser.add_argument("--kill-for", type=float, help="kill the registry for so many seconds")
    parser.add_argument("--tls", action="store_true", help="serve by HTTPS")
    parser.add_argument("--mutual", action="store_true", help="and hosts show certificates")
    parser.add_argument("--prometheus", action="store_true", help="put a real one beside it")
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
