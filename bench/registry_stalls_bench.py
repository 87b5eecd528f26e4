"""Measures how long heartbeats wait while clients ask the registry for everything.

A host reports some hundred times a second, from a process of its own. Beside it, one client or ten
ask for all nodes, with filters, compressed, in pages, for all targets, and for the metrics.
All traffic stays on 127.0.0.1, and the run ends by itself.

    python bench/registry_stalls_bench.py                    # 100,000 nodes, some two minutes
    python bench/registry_stalls_bench.py --nodes 1000000
    python bench/registry_stalls_bench.py --baseline DIR     # another checkout's registry as well
"""

import argparse
import http.client
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from probe import Probe, ProbeOptions
from registry_bench import PEER, PORT, Bench
from registry_load import KEY

CLIENTS = 10
PROBE_INTERVAL_SECONDS = 0.004
SETTLE_SECONDS = 1.0
FILL_SECONDS = 20
NODES_PER_SECOND = 5000
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

    def waits(self, path: str, headers: dict[str, str], clients: int) -> Waits:
        """Return seconds: until all were answered, heartbeats' 99th percentile and their maximum.

        An old registry that knows no such request answers at once.
        """
        time.sleep(SETTLE_SECONDS)
        self._probe.latencies()
        began = time.monotonic()
        with ThreadPoolExecutor(clients) as threads:
            list(threads.map(lambda _: self._ask(path, headers), range(clients)))
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
            side.waits("/prometheus/rollcall", SCRAPER, 1)  # the first time, targets are encoded
            yield side
        finally:
            side.end()


def columns(waits: Waits) -> str:
    """Return the cells of a row."""
    seconds, p99, longest = waits
    return f" {seconds:.2f} s | {p99 * 1e3:.0f} ms | {longest * 1e3:.0f} ms |"


def compare(bench: Bench, nodes: int, baseline: Path | None) -> None:
    """Print a row for each request and number of clients."""
    sides = [None] if baseline is None else [None, baseline]
    rows: dict[tuple[str, int], str] = {}
    for checkout in sides:
        with measured(bench, nodes, checkout) as side:
            for what, (path, headers) in REQUESTS.items():
                for clients in (1, CLIENTS):
                    cells = columns(side.waits(path, headers, clients))
                    rows[what, clients] = rows.get((what, clients), "") + cells
    for (what, clients), cells in rows.items():
        print(f"| {what} | {clients} |{cells}")


def main() -> None:
    """Measure with the number of nodes that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
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
        compare(bench, options.nodes, options.baseline and options.baseline.resolve())


if __name__ == "__main__":
    main()
