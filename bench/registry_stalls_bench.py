"""Measures how long heartbeats wait while clients ask the registry for everything.

Hosts report some hundred times a second, from a process of their own. Beside them, one client or
ten ask for all nodes, with filters, compressed, in pages, for all targets, and for the metrics, or
begin to watch. A thousand clients watch while nodes change. One host sends large heartbeats as fast
as it can. A registry loads all nodes, reads its keys again, and all nodes become stale and expire
at once. A heartbeat that is not answered with 200, or not at all, counts as rejected; it has a
latency all the same.
All traffic stays on 127.0.0.1, and the run ends by itself: no row begins after `--minutes`, and
none takes longer than some minutes. On a quiet machine it takes some four minutes.

    python bench/registry_stalls_bench.py                    # 100,000 nodes
    python bench/registry_stalls_bench.py --nodes 1000000    # some twenty minutes
    python bench/registry_stalls_bench.py --idle             # a registry that nobody asks as well
    python bench/registry_stalls_bench.py --only daemon      # the load, new keys, the expiry
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.probe import Probe
from load.registry_load import KEY, SteadyLoad
from load.waits import (
    CONNECTIONS,
    ROW_SECONDS,
    SETTLE_SECONDS,
    LargePosts,
    Measured,
    NoAnswerError,
    Waits,
    host,
)
from processes import write_settings
from registry_bench import PORT, Bench, fill

from registry.api.access import NodeKeys

IDLE = PORT + 1
CLIENTS = 10
CHANGES_PER_SECOND = 300
CHANGE_SECONDS = 10
WATCHERS = str(Path(__file__).parent / "load" / "watchers.py")
# The stores are new, and targets are wanted at once.
RULES = {"warm_up_seconds": 0, "max_mib": 0}
LARGE_HOST = "large.fleet.test"
LARGE_SECONDS = 30
MIN_EXPIRE_SECONDS = 15
# Until then, all nodes are loaded.
LOADED_PER_SECOND = 10_000
SAMPLE = 100
RELOADS = 10
MINUTES = 60
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
Row = tuple[Key, Waits]


class Subject:
    """The registry that is measured, on a store with nodes or on a copy of it."""

    def __init__(self, bench: Bench, nodes: int) -> None:
        self._bench = bench
        self._store, self._copy = bench.path("r.db"), bench.path("copy.db")
        asyncio.run(fill(self._store, nodes, nodes))
        shutil.copy(self._store, self._copy)

    @contextmanager
    def running(self) -> Iterator[int]:
        """Run the registry while the context is open; yield its process id."""
        with self._started(self._store, RULES) as pid:
            yield pid

    @contextmanager
    def running_on_copy(self, expiry: Mapping[str, int]) -> Iterator[int]:
        """Run the registry on the copy of its store, with further rules; yield its process id."""
        with self._started(self._copy, {**RULES, **expiry}) as pid:
            yield pid

    @contextmanager
    def _started(self, store: Path, rules: Mapping[str, int]) -> Iterator[int]:
        config = write_settings(
            self._bench.path("registry.yml"),
            PORT,
            store=f"sqlite:///{store}",
            node_secret={"value": KEY},
            nodes=dict(rules),
        )
        with self._bench.started(config) as pid:
            yield pid


def rows(subject: Subject, options: argparse.Namespace, idle: Probe | None) -> Iterator[Row]:
    """Yield all rows."""
    if options.only != "daemon":
        with subject.running(), ExitStack() as stack:
            side = Measured(PORT, idle)
            stack.callback(side.end)
            # The first time, targets are encoded.
            side.waits_beside("/prometheus/rollcall", SCRAPER, 1)
            yield from request_rows(side)
            yield from watch_rows(side, options.watchers)
            yield large_row(side, options.seconds)
    yield from daemon_rows(subject, options.nodes, idle)


def until(ends: float, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows as long as there is time."""
    with suppress(NoAnswerError):
        for row in rows:
            yield row
            if time.monotonic() > ends:
                break
        else:
            return
    print("# the rows that would follow here took too long", flush=True)


def request_rows(side: Measured) -> Iterator[Row]:
    """Yield the rows of requests that are answered and done with."""
    for what, (path, headers) in REQUESTS.items():
        for clients in (1, CLIENTS):
            yield (what, clients), side.waits_beside(path, headers, clients)


def watch_rows(side: Measured, watching: int) -> Iterator[Row]:
    """Yield the rows of clients that watch."""
    for clients in (1, CLIENTS):

        def begin(clients: int = clients) -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: side.listed(), range(clients)))

        yield ("watch=true, until all are listed", clients), side.waits(begin)
    for what, last_id in (("", side.listed()), (", from the beginning", "")):
        waits = side.waits(partial(change_beside_watchers, side.port, last_id, watching))
        yield (f"watch=true{what} beside {CHANGES_PER_SECOND} changes/s", watching), waits


def change_beside_watchers(port: int, last_id: str, watching: int) -> None:
    """Change nodes while many clients watch; print what they got."""
    command = [sys.executable, WATCHERS, "--port", str(port), "--key", KEY]
    command += ["--last-id", last_id, "--connections", str(watching)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as watchers:
        assert watchers.stdout is not None
        watchers.stdout.readline()
        load = SteadyLoad(port, rate=CHANGES_PER_SECOND, hosts=1000, changes=True)
        rate, p99, bad = asyncio.run(load.run(CHANGE_SECONDS))
        time.sleep(SETTLE_SECONDS)
        events, ended = watchers.communicate("\n")[0].split()
    print(
        f"# {watching:,} watchers, {rate:.0f} changes/s, {bad} rejected, p99 {p99:.0f} ms:"
        f" each got {events} events, {ended} cut off",
        flush=True,
    )


def large_row(side: Measured, seconds: float) -> Row:
    """Return the row of a host that sends as much as it can, with its own key."""
    posts = LargePosts(side.port, LARGE_HOST, NodeKeys([KEY]).make(LARGE_HOST))
    statuses: list[Mapping[int, int]] = []
    waits = side.waits(lambda: statuses.append(posts.send(seconds)))
    print(f"# large heartbeats by status: {[dict(found) for found in statuses]}", flush=True)
    return ("one host's changes of 800 KB, 4,000 services", CONNECTIONS), waits


def daemon_rows(subject: Subject, nodes: int, idle: Probe | None) -> Iterator[Row]:
    """Yield the rows of what a registry does unasked."""
    seconds = max(MIN_EXPIRE_SECONDS, nodes // LOADED_PER_SECOND)
    expiry = {
        "stale_after_seconds": seconds,
        "expire_after_seconds": seconds,
        "expire_at_most_percent": 0,
    }
    side = Measured(PORT, idle)
    started: list[int] = []
    with ExitStack() as stack:
        stack.callback(side.end)
        registry = subject.running_on_copy(expiry)
        load = side.waits(lambda: started.append(stack.enter_context(registry)))
        expires = time.monotonic() + seconds - load.seconds
        yield ("the load at the start", 0), load

        def reload() -> None:
            for _ in range(RELOADS):
                os.kill(started[0], signal.SIGHUP)
                time.sleep(SETTLE_SECONDS / RELOADS)

        yield (f"{RELOADS} times SIGHUP", 0), side.waits(reload)
        time.sleep(max(0.0, expires - SETTLE_SECONDS - time.monotonic()))
        left = [f"host-{number:06}.example.com" for number in range(0, nodes, nodes // SAMPLE)]
        waits = side.waits(partial(wait_for_expiry, PORT, left))
        yield ("all nodes become stale and expire", 0), waits


def wait_for_expiry(port: int, left: Sequence[str]) -> None:
    """Wait until a sample of nodes has expired. Raises TimeoutError."""
    ends = time.monotonic() + ROW_SECONDS
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {KEY}"
        while left := [name for name in left if is_known(session, port, name)]:
            if time.monotonic() > ends:
                raise TimeoutError
            time.sleep(SETTLE_SECONDS)


def is_known(session: requests.Session, port: int, hostname: str) -> bool:
    """Return whether a registry has a node, or does not answer."""
    with suppress(requests.RequestException):
        answer = session.get(f"http://127.0.0.1:{port}/nodes/{hostname}", timeout=ROW_SECONDS)
        return answer.status_code != HTTPStatus.NOT_FOUND
    return True


def main() -> None:
    """Measure with the number of nodes that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument(
        "--seconds", type=int, default=LARGE_SECONDS, help="how long large heartbeats are sent"
    )
    parser.add_argument("--idle", action="store_true", help="measure an idle registry as well")
    parser.add_argument("--only", choices=["daemon"], help="what a registry does unasked")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no row begins later")
    options = parser.parse_args()
    columns = ["answered in", "heartbeats' p99", "longest", "rejected"]
    columns += ["idle registry: p99", "longest"] * options.idle
    print(f"| {options.nodes:,} nodes | clients | {' | '.join(columns)} |")
    print("| --- " * (2 + len(columns)) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder, ExitStack() as stack:
        bench = Bench(folder=Path(folder), seconds=1, rounds=1)
        idle = None
        if options.idle:
            stack.enter_context(bench.registry(port=IDLE))
            idle = host(IDLE)
            stack.callback(idle.end)
        found = rows(Subject(bench, options.nodes), options, idle)
        for (what, clients), waits in until(time.monotonic() + options.minutes * 60, found):
            print(f"| {what} | {clients} |{waits.cells()}", flush=True)


if __name__ == "__main__":
    main()
