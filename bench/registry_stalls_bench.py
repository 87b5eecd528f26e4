"""Measures how long heartbeats wait while clients ask the registry for everything.

A host reports some hundred times a second, from a process of its own. Beside it, one client or ten
ask for all nodes, with filters, compressed, in pages, for all targets, and for the metrics, or
begin to watch. A thousand clients watch while nodes change.
All traffic stays on 127.0.0.1, and the run ends by itself.

    python bench/registry_stalls_bench.py                    # 100,000 nodes, some two minutes
    python bench/registry_stalls_bench.py --nodes 1000000
    python bench/registry_stalls_bench.py --baseline DIR     # another checkout's registry as well
"""

import argparse
import asyncio
import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from probe import Probe, ProbeOptions
from registry_bench import PEER, PORT, Bench
from registry_load import KEY, SteadyLoad

CLIENTS = 10
PROBE_INTERVAL_SECONDS = 0.004
SETTLE_SECONDS = 1.0
FILL_SECONDS = 30
NODES_PER_SECOND = 5000
CHANGES_PER_SECOND = 300
CHANGE_SECONDS = 10
WATCHERS = Path(__file__).with_name("watchers.py")
READ_BYTES = 1024 * 1024
NO_MATCH = "&".join(f"prefix=none:{number}" for number in range(16))
SCRAPER = {"X-Prometheus-Refresh-Interval-Seconds": "60"}
REQUESTS = {
    "GET /nodes": ("/nodes", {}),
    "GET /nodes, gzip": ("/nodes", {"Accept-Encoding": "gzip"}),
    "label=service:web, all match": ("/nodes?label=service:web", {}),
    "label=, none match": ("/nodes?label=none", {}),
    "16 x prefix=, none match": (f"/nodes?{NO_MATCH}", {}),
    "max_age=3600": ("/nodes?max_age=3600", {}),
    "limit=10000": ("/nodes?limit=10000", {}),
    "all targets": ("/prometheus/rollcall", SCRAPER),
    "/metrics": ("/metrics", {}),
}
Waits = tuple[float, float, float]


class Measured:
    """A registry with nodes, and a host that reports to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        url = f"http://127.0.0.1:{port}"
        self._probe = Probe(ProbeOptions(url, KEY, "", None, PROBE_INTERVAL_SECONDS))

    def waits_beside(self, path: str, headers: dict[str, str], clients: int) -> Waits:
        """Return how long heartbeats wait while so many clients ask once.

        An old registry that knows no such request answers at once.
        """

        def ask() -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: self._ask(path, headers), range(clients)))

        return self.waits(ask)

    def waits(self, ask: Callable[[], object]) -> Waits:
        """Return seconds: until `ask` returned, heartbeats' 99th percentile and their maximum."""
        time.sleep(SETTLE_SECONDS)
        self._probe.latencies()
        began = time.monotonic()
        ask()
        seconds = time.monotonic() - began
        time.sleep(PROBE_INTERVAL_SECONDS * 10)
        latencies = sorted(self._probe.latencies())
        return seconds, latencies[int(len(latencies) * 0.99)], latencies[-1]

    def _ask(self, path: str, headers: dict[str, str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}", **headers})
        response = connection.getresponse()
        while response.read(READ_BYTES):
            pass
        connection.close()

    def listed(self) -> str:
        """Watch until all nodes were listed; return an id from which changes alone follow."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        headers = {"Authorization": f"Bearer {KEY}"}
        connection.request("GET", "/nodes?watch=true", headers=headers)
        response, last_id = connection.getresponse(), ""
        while last_id.count("-") != 1:  # before, an id says how far the list is
            line = response.readline().decode()
            last_id = line.removeprefix("id: ").strip() if line.startswith("id: ") else last_id
        connection.close()
        return last_id

    def change_beside_watchers(self, last_id: str, watching: int) -> None:
        """Change nodes while many clients watch; print what they got."""
        command = [sys.executable, WATCHERS, "--port", str(self._port), "--key", KEY]
        command += ["--last-id", last_id, "--connections", str(watching)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as watchers:
            assert watchers.stdout is not None
            watchers.stdout.readline()
            load = SteadyLoad(self._port, rate=CHANGES_PER_SECOND, hosts=1000, changes=True)
            rate, p99, bad = asyncio.run(load.run(CHANGE_SECONDS))
            time.sleep(SETTLE_SECONDS)
            events, ended = watchers.communicate("\n")[0].split()
        print(
            f"# {watching:,} watchers, {rate:.0f} changes/s, {bad} refused, p99 {p99:.0f} ms:"
            f" each got {events} events, {ended} cut off",
            flush=True,
        )

    def end(self) -> None:
        """End the host."""
        self._probe.end()


@contextmanager
def measured(bench: Bench, nodes: int, checkout: Path | None) -> Iterator[Measured]:
    """Run a registry of this or another checkout, with this many nodes."""
    port = PORT if checkout is None else PEER
    running = bench.registry() if checkout is None else bench.baseline(checkout, port)
    with running:
        bench.wrk.posts(port, connections=128, hosts=nodes)
        side = Measured(port)
        try:
            # The first time, targets are encoded.
            side.waits_beside("/prometheus/rollcall", SCRAPER, 1)
            yield side
        finally:
            side.end()


def columns(waits: Waits) -> str:
    """Return the cells of a row."""
    seconds, p99, longest = waits
    return f" {seconds:.2f} s | {p99 * 1e3:.0f} ms | {longest * 1e3:.0f} ms |"


def compare(bench: Bench, nodes: int, watching: int, baseline: Path | None) -> None:
    """Print a row for each request and number of clients."""
    sides = [None] if baseline is None else [None, baseline]
    rows: dict[tuple[str, int], str] = {}
    for checkout in sides:
        with measured(bench, nodes, checkout) as side:
            for what, (path, headers) in REQUESTS.items():
                for clients in (1, CLIENTS):
                    cells = columns(side.waits_beside(path, headers, clients))
                    rows[what, clients] = rows.get((what, clients), "") + cells
            if checkout is None:  # one from before knows no watch
                rows |= watch_rows(side, watching)
    for (what, clients), cells in rows.items():
        print(f"| {what} | {clients} |{cells}")


def watch_rows(side: Measured, watching: int) -> dict[tuple[str, int], str]:
    """Return the rows of clients that watch."""
    rows = {}
    for clients in (1, CLIENTS):

        def begin(clients: int = clients) -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: side.listed(), range(clients)))

        rows["watch=true, until all are listed", clients] = columns(side.waits(begin))
    last_id = side.listed()
    waits = side.waits(partial(side.change_beside_watchers, last_id, watching))
    rows[f"watch=true beside {CHANGES_PER_SECOND} changes/s", watching] = columns(waits)
    return rows


def main() -> None:
    """Measure with the number of nodes that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument(
        "--seconds", type=int, help="how long nodes are added; else by their number"
    )
    parser.add_argument("--baseline", type=Path, help="another checkout, with its environment")
    options = parser.parse_args()
    before = " before: answered in | p99 | longest |" if options.baseline else ""
    print(
        f"| {options.nodes:,} nodes | clients | answered in | heartbeats' p99 | longest |{before}"
    )
    print("| --- " * (8 if options.baseline else 5) + "|")
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder:
        seconds = options.seconds or max(FILL_SECONDS, options.nodes // NODES_PER_SECOND)
        bench = Bench(folder=Path(folder), seconds=seconds, rounds=1)
        baseline = options.baseline and options.baseline.resolve()
        compare(bench, options.nodes, options.watchers, baseline)


if __name__ == "__main__":
    main()
