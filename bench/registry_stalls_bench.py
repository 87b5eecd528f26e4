"""Measures how long heartbeats wait while clients ask the registry for everything.

A host reports some hundred times a second, from a process of its own. Beside it, one client or ten
ask for all nodes, with filters, compressed, in pages, for all targets, and for the metrics, or
begin to watch. A thousand clients watch while nodes change. A registry loads all nodes, reads its
keys again, and all nodes become stale and expire at once.
All traffic stays on 127.0.0.1, and the run ends by itself.

    python bench/registry_stalls_bench.py                    # 100,000 nodes, some two minutes
    python bench/registry_stalls_bench.py --nodes 1000000
    python bench/registry_stalls_bench.py --baseline DIR     # another checkout's registry as well
    python bench/registry_stalls_bench.py --idle             # a registry that nobody asks as well
    python bench/registry_stalls_bench.py --only daemon      # the load, new keys, the expiry
"""

import argparse
import asyncio
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from load.probe import Probe, ProbeOptions
from load.registry_load import KEY, SteadyLoad
from registry_bench import PEER, PORT, RULES, Bench, get

IDLE = PORT + 1
CLIENTS = 10
PROBE_INTERVAL_SECONDS = 0.004
SETTLE_SECONDS = 1.0
FILL_SECONDS = 30
NODES_PER_SECOND = 5000
CHANGES_PER_SECOND = 300
CHANGE_SECONDS = 10
WATCHERS = str(Path(__file__).parent / "load" / "watchers.py")
READ_BYTES = 1024 * 1024
MAX_LINE_BYTES = 4096
EXPIRE_SECONDS = 15
RELOADS = 10
NO_MATCH = "&".join(f"prefix=none:{number}" for number in range(16))
SCRAPER = {"X-Prometheus-Refresh-Interval-Seconds": "60"}
REQUESTS = {
    "GET /nodes": ("/nodes", {}),
    "GET /nodes, gzip": ("/nodes", {"Accept-Encoding": "gzip"}),
    "label=service:web, all match": ("/nodes?label=service:web", {}),
    "label=, none match": ("/nodes?label=none", {}),
    "16 x prefix=, none match": (f"/nodes?{NO_MATCH}", {}),
    "prefix=, none match, limit=50": ("/nodes?prefix=none&limit=50", {}),
    "search=, none match, limit=50": ("/nodes?search=none&limit=50", {}),
    "search=, a host, limit=50": ("/nodes?search=HOST-000007&limit=50", {}),
    "stale=true, none match, limit=50": ("/nodes?stale=true&limit=50", {}),
    "/services": ("/services", {}),
    "/status": ("/status", {}),
    "max_age=3600": ("/nodes?max_age=3600", {}),
    "limit=10000": ("/nodes?limit=10000", {}),
    "all targets": ("/prometheus/rollcall", SCRAPER),
    "/metrics": ("/metrics", {}),
}
Key = tuple[str, int]  # what is asked, and by how many clients


class Waits(NamedTuple):
    """How long a request took, and all heartbeats beside it, in seconds.

    `idle` are the heartbeats at the same time to a registry that nobody else asks: what they wait
    for is the machine. It is empty if there is none.
    """

    seconds: float
    heartbeats: list[float]
    idle: list[float]


Row = tuple[Key, Waits]


def host(port: int) -> Probe:
    """Return a host that reports to the registry at a port."""
    url = f"http://127.0.0.1:{port}"
    return Probe(ProbeOptions(url, KEY, "", None, PROBE_INTERVAL_SECONDS))


class Measured:
    """A registry with nodes, and a host that reports to it; `idle` reports to another one."""

    def __init__(self, port: int, idle: Probe | None) -> None:
        self._port = port
        self._probe = host(port)
        self._idle = idle

    def waits_beside(self, path: str, headers: dict[str, str], clients: int) -> Waits:
        """Return how long heartbeats wait while so many clients ask once.

        An old registry that knows no such request answers at once.
        """

        def ask() -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: self._ask(path, headers), range(clients)))

        return self.waits(ask)

    def waits(self, ask: Callable[[], object]) -> Waits:
        """Return how long `ask` takes, and the heartbeats beside it."""
        time.sleep(SETTLE_SECONDS)
        self._latencies()
        began = time.monotonic()
        ask()
        seconds = time.monotonic() - began
        time.sleep(PROBE_INTERVAL_SECONDS * 10)
        return Waits(seconds, *self._latencies())

    def _latencies(self) -> tuple[list[float], list[float]]:
        ours = self._probe.latencies()
        return sorted(ours), sorted(self._idle.latencies()) if self._idle else []

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
        response, last_id, rest = connection.getresponse(), "", b""
        while last_id.count("-") != 1:  # before, an id says how far the list is
            rest = rest[-MAX_LINE_BYTES:] + response.read1(READ_BYTES)
            ids = rest[rest.rfind(b"\nid: ", 0, rest.rfind(b"\n")) :].split(b"\n")
            last_id = ids[1].removeprefix(b"id: ").decode() if len(ids) > 1 else last_id
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
def measured(
    bench: Bench, nodes: int, checkout: Path | None, idle: Probe | None
) -> Iterator[Measured]:
    """Run a registry of this or another checkout, with this many nodes."""
    port = PORT if checkout is None else PEER
    running = bench.registry(nodes) if checkout is None else bench.baseline(checkout, port)
    with running:
        if checkout is not None:  # its store may have another schema
            bench.wrk.posts(port, connections=128, hosts=nodes)
        side = Measured(port, idle)
        try:
            # The first time, targets are encoded.
            side.waits_beside("/prometheus/rollcall", SCRAPER, 1)
            yield side
        finally:
            side.end()


def columns(waits: Waits) -> str:
    """Return the cells of a row."""
    cells = [f" {waits.seconds:.2f} s"]
    for latencies in filter(None, waits[1:]):
        p99 = latencies[int(len(latencies) * 0.99)]
        cells += [f" {p99 * 1e3:.0f} ms", f" {latencies[-1] * 1e3:.0f} ms"]
    return " |".join([*cells, ""])


def compare(bench: Bench, options: argparse.Namespace, idle: Probe | None) -> None:
    """Print a row for each request and number of clients, as soon as it was measured."""
    before, nodes = {}, options.nodes
    if options.only != "daemon":
        if options.baseline is not None:
            with measured(bench, nodes, options.baseline.resolve(), idle) as side:
                before = {key: columns(waits) for key, waits in request_rows(side)}
        with measured(bench, nodes, None, idle) as side:
            for rows in (request_rows(side), watch_rows(side, options.watchers)):
                print_rows(rows, before)
    print_rows(daemon_rows(bench, nodes, idle), before)


def print_rows(rows: Iterator[Row], before: Mapping[Key, str]) -> None:
    """Print rows, each with what was measured before."""
    for key, waits in rows:
        what, clients = key
        print(f"| {what} | {clients} |{columns(waits)}{before.get(key, '')}", flush=True)


def request_rows(side: Measured) -> Iterator[Row]:
    """Return the rows of requests that are answered and done with."""
    for what, (path, headers) in REQUESTS.items():
        for clients in (1, CLIENTS):
            yield (what, clients), side.waits_beside(path, headers, clients)


def watch_rows(side: Measured, watching: int) -> Iterator[Row]:
    """Return the rows of clients that watch, which an old registry does not know."""
    for clients in (1, CLIENTS):

        def begin(clients: int = clients) -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: side.listed(), range(clients)))

        yield ("watch=true, until all are listed", clients), side.waits(begin)
    for what, last_id in (("", side.listed()), (", from the beginning", "")):
        waits = side.waits(partial(side.change_beside_watchers, last_id, watching))
        yield (f"watch=true{what} beside {CHANGES_PER_SECOND} changes/s", watching), waits


def daemon_rows(bench: Bench, nodes: int, idle: Probe | None) -> Iterator[Row]:
    """Return the rows of what a registry does unasked."""
    rules = {"stale_after_seconds": EXPIRE_SECONDS, "expire_after_seconds": EXPIRE_SECONDS}
    registry = bench.started(bench.settings(nodes, rules={**RULES, **rules}))
    side = Measured(PORT, idle)
    started = []
    with ExitStack() as stack:
        stack.callback(side.end)
        load = side.waits(lambda: started.append(stack.enter_context(registry)))
        yield ("the load at the start", 0), load

        def reload() -> None:
            for _ in range(RELOADS):
                os.kill(started[0], signal.SIGHUP)
                time.sleep(SETTLE_SECONDS / RELOADS)

        yield (f"{RELOADS} times SIGHUP", 0), side.waits(reload)

        def expire() -> None:
            while len(get("/nodes?limit=100")) > len(get("/nodes/probe.fleet.test")):
                time.sleep(SETTLE_SECONDS)

        yield ("all nodes become stale and expire", 0), side.waits(expire)


def main() -> None:
    """Measure with the number of nodes that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument(
        "--seconds", type=int, help="how long nodes are added to the other; else by their number"
    )
    parser.add_argument("--baseline", type=Path, help="another checkout, with its environment")
    parser.add_argument("--idle", action="store_true", help="measure an idle registry as well")
    parser.add_argument("--only", choices=["daemon"], help="what a registry does unasked")
    options = parser.parse_args()
    columns = ["answered in", "heartbeats' p99", "longest"]
    columns += ["idle registry: p99", "longest"] * options.idle
    columns += ["before: answered in", "p99", "longest"] * bool(options.baseline)
    print(f"| {options.nodes:,} nodes | clients | {' | '.join(columns)} |")
    print("| --- " * (2 + len(columns)) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder, ExitStack() as stack:
        seconds = options.seconds or max(FILL_SECONDS, options.nodes // NODES_PER_SECOND)
        bench = Bench(folder=Path(folder), seconds=seconds, rounds=1)
        idle = None
        if options.idle:
            stack.enter_context(bench.registry(port=IDLE))
            idle = host(IDLE)
            stack.callback(idle.end)
        compare(bench, options, idle)


if __name__ == "__main__":
    main()
