"""Compares the registry with etcd and with bare aiohttp handlers: speed, memory, start.

Measurements of the registry and its peer alternate, in one run; the result is the median of the
ratios. All traffic stays on 127.0.0.1, the status of every answer is checked, and the run ends by
itself.

    python bench/registry_bench.py                  # some five minutes
    python bench/registry_bench.py --million        # with a million nodes as well
    python bench/registry_bench.py --only nodes     # one part
    python bench/registry_bench.py --baseline DIR   # heartbeats beside another checkout's registry
    python bench/registry_bench.py --only million --nodes 200000 [--baseline DIR]
"""

import argparse
import asyncio
import gc
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.registry_load import BODY, KEY, Result, SteadyLoad, Wrk
from processes import bare, cpu_seconds, etcd, process, resident_mib, write_settings

from registry.store.protocol import Row
from registry.store.sqlite.store import SqliteStore

PORT = 28655
PEER = 28660
PROGRAM = Path(sys.executable).with_name("rollcall-registry")
DOCUMENT = BODY.encode()
# The stores are new, and targets are wanted at once.
RULES = {"warm_up_seconds": 0, "max_mib": 0, "changes_per_minute": 0}
MILLION = 1_000_000
SEARCHES = (
    *("prefix=none", "search=none", "search=o-such", "search=zz", "search=HOST-099999"),
    *("search=os:debian", "stale=true"),
)
SEARCH_MILLISECONDS = 50
# What is listed, beside how many heartbeats a second, and the CPU time in milliseconds.
LISTS = (
    ("/nodes", 0, 3.5),
    ("/nodes", 333, 5.0),
    ("/nodes?label=env:prod", 0, 7.0),
)
LIST_SECONDS = 10.0
LIST_PAUSE_SECONDS = 0.2
PREPARED_SECONDS = 5.0
ANSWERS = 21
# A round of that many seconds reaches most of the nodes.
FIRST_PER_SECOND = 5000
PER_SECOND = 16_000
Side = tuple[int, Callable[[], Result]]  # process id, and how to measure it


class Bench:
    """A run: its folder, load generator and number of rounds."""

    def __init__(self, *, folder: Path, seconds: int, rounds: int) -> None:
        self._folder = folder
        self._seconds = seconds
        self._rounds = rounds
        self.wrk = Wrk(folder, seconds=seconds)

    def path(self, name: str) -> Path:
        """Return an unused path in the folder."""
        return self._folder / f"{name}-{time.monotonic_ns()}"

    def settings(
        self,
        nodes: int,
        offering: int | None = None,
        *,
        port: int = PORT,
        rules: Mapping[str, int] = RULES,
    ) -> Path:
        """Make a store with this many nodes; return the settings file of a registry for it."""
        file = self.path("r.db")
        if nodes:  # an empty store is made by the registry, with its own schema
            asyncio.run(fill(file, nodes, nodes if offering is None else offering))
        config = self.path("registry.yml")
        return write_settings(config, port, store=f"sqlite:///{file}", nodes=dict(rules))

    @contextmanager
    def registry(
        self, nodes: int = 0, *, offering: int | None = None, port: int = PORT
    ) -> Iterator[int]:
        """Run a registry with this many nodes; yield its process id."""
        with self.started(self.settings(nodes, offering, port=port), port) as pid:
            yield pid

    @contextmanager
    def started(self, config: Path, port: int = PORT) -> Iterator[int]:
        """Run a registry with a settings file; yield its process id."""
        with process([PROGRAM, "--config", config], f"http://127.0.0.1:{port}/healthz") as server:
            yield server.pid

    @contextmanager
    def baseline(self, checkout: Path, port: int) -> Iterator[int]:
        """Run the registry of another checkout, in its own environment; yield its process id."""
        program = checkout / ".venv/bin/rollcall-registry"
        config = self.settings(0, port=port, rules={})  # it may know none of them
        with process([program, "--config", config], f"http://127.0.0.1:{port}/healthz") as server:
            yield server.pid

    def compare(
        self, what: str, ours: Side, peer: Side, *, aim: float, cpu_aim: float = 0.0
    ) -> None:
        """Measure both alternately; print the medians, and the median of the ratios.

        `aim` is the least ratio of the rates, `cpu_aim` that of the peer's CPU time to ours, if
        there is one. Each has its own verdict.
        """
        rounds = [(self._measure(ours), self._measure(peer)) for _ in range(self._rounds)]
        ratios = [mine.rate / theirs.rate for (mine, _), (theirs, _) in rounds]
        mine, theirs = (statistics.median(side[i][0].rate for side in rounds) for i in (0, 1))
        ours_cpu, peers_cpu = (statistics.median(side[i][1] for side in rounds) for i in (0, 1))
        bad = sum(result.bad for both in rounds for result, _ in both)
        ratio, cpu_ratio = statistics.median(ratios), peers_cpu / ours_cpu
        aims, verdicts = f"{aim}", _verdict(ratio, aim)
        if cpu_aim:
            aims, verdicts = f"{aims}; {cpu_aim:.2f}", f"{verdicts}; {_verdict(cpu_ratio, cpu_aim)}"
        print(
            f"| {what} | {mine:,.0f}/s, {ours_cpu:.0f} us | {theirs:,.0f}/s, {peers_cpu:.0f} us"
            f" | {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); {cpu_ratio:.2f}"
            f" | {aims} | {verdicts} | {bad} |",
            flush=True,
        )

    def _measure(self, side: Side) -> tuple[Result, float]:
        """Return the result of wrk, and the server's CPU time per answer in microseconds."""
        pid, measure = side
        before = cpu_seconds(pid)
        result = measure()
        spent = cpu_seconds(pid) - before
        return result, spent / result.answers * 1e6


def _verdict(ratio: float, aim: float) -> str:
    return "met" if ratio >= aim else "MISSED"


async def fill(file: Path, nodes: int, offering: int) -> None:
    """Make a store of nodes, the first ``offering`` of which offer the service."""
    store = SqliteStore(path=file, monotonic=time.monotonic, observe=lambda _n, _s: None)
    await store.load()
    for start in range(0, nodes, 1000):
        hosts = range(start, min(start + 1000, nodes))
        await asyncio.gather(*[store.put(row(host, offering), lambda _e: None) for host in hosts])
    await store.close()
    gc.collect()


def row(host: int, offering: int) -> Row:
    """Return the stored row of a host of the load generator."""
    document = DOCUMENT % (host, host, 1)
    if host >= offering:
        document = document.replace(b"prometheus:rollcall", b"nothing:rollcall")
    return Row(f"host-{host:06}.example.com", document, int(time.time()), "127.0.0.1")


def get(path: str) -> bytes:
    """Return the body of the registry's answer to a GET."""
    answer = requests.get(
        f"http://127.0.0.1:{PORT}{path}",
        headers={"Authorization": f"Bearer {KEY}", "X-Prometheus-Refresh-Interval-Seconds": "60"},
        timeout=120,
    )
    answer.raise_for_status()
    return answer.content


def heartbeats(bench: Bench) -> None:
    """Compare heartbeats with writes to etcd, and with a bare handler."""
    (empty := bench.path("empty")).write_bytes(b"[]")
    with (
        bench.registry() as ours,
        etcd(bench.path("etcd"), PEER) as there,
        bare(PEER + 2, empty) as least,
    ):

        def posts(port: int, connections: int, bodies: int, kind: str = "node") -> Result:
            return bench.wrk.posts(port, connections=connections, bodies=bodies, kind=kind)

        for connections, aim in ((32, 1.3), (128, 2.5)):
            bench.compare(
                f"changed, durable, {connections} connections; etcd",
                (ours, partial(posts, PORT, connections, 2)),
                (there, partial(posts, PEER, connections, 2, "etcd")),
                aim=aim,
                cpu_aim=1 / 0.7,
            )
        for connections, aim in ((32, 2.0), (128, 3.5)):
            bench.compare(
                f"unchanged, {connections} connections; etcd",
                (ours, partial(posts, PORT, connections, 1)),
                (there, partial(posts, PEER, connections, 1, "etcd")),
                aim=aim,
            )
        unchanged = ours, partial(posts, PORT, 128, 1)
        peer = least, partial(posts, PEER + 2, 128, 1)
        bench.compare("unchanged, 128 connections; bare handler", unchanged, peer, aim=0.85)


def against_baseline(bench: Bench, checkout: Path) -> None:
    """Compare heartbeats with those of another checkout's registry."""
    with bench.registry() as ours, bench.baseline(checkout, PEER) as theirs:
        for what, bodies, aim in (("unchanged", 1, 1.4), ("changed, durable", 2, 1.15)):
            for connections in (32, 128):
                ask = partial(bench.wrk.posts, connections=connections, bodies=bodies)
                bench.compare(
                    f"{what}, {connections} connections; {checkout}",
                    (ours, partial(ask, PORT)),
                    (theirs, partial(ask, PEER)),
                    aim=aim,
                )


def targets(bench: Bench) -> None:
    """Measure GET /prometheus/{service} with twenty targets in fleets of two sizes."""
    path = "/prometheus/rollcall"
    for fleet in (200, 20_000):
        with bench.registry(fleet, offering=20) as ours:
            (answer := bench.path("answer")).write_bytes(get(path))
            with bare(PEER, answer) as least:
                bench.compare(
                    f"GET /prometheus, 20 of {fleet:,} nodes; bare handler with the same bytes",
                    (ours, partial(bench.wrk.gets, PORT, path)),
                    (least, partial(bench.wrk.gets, PEER, path)),
                    aim=0.9,
                )


def nodes(bench: Bench) -> None:
    """Measure GET /nodes of 10,000 nodes, beside 1,000 heartbeats a second."""
    with bench.registry(10_000), ThreadPoolExecutor(1) as pool:
        get("/nodes")
        steady_load = SteadyLoad(PORT, rate=1000, hosts=10_000)
        beating = pool.submit(lambda: asyncio.run(steady_load.run(12)))
        time.sleep(2)
        result = bench.wrk.gets(PORT, "/nodes", connections=4)
        rate, p99, bad = beating.result()
    verdict = "met" if result.rate >= 250 and p99 < 100 else "MISSED"
    print(
        f"| GET /nodes, 10,000 nodes, {rate:,.0f} heartbeats/s | {result.rate:,.0f}/s;"
        f" heartbeats' p99 {p99:.0f} ms | | | 250/s, 100 ms | {verdict} | {result.bad + bad} |"
    )


def lists(bench: Bench) -> None:
    """Measure the CPU time of a list of 10,000 nodes: unchanged, beside heartbeats, filtered."""
    with bench.registry(10_000) as pid, ThreadPoolExecutor(1) as pool:
        for path, beats, aim in LISTS:
            get(path)
            beating = pool.submit(beat, beats) if beats else None
            time.sleep(1)
            idle, _ = lists_for(pid, LIST_SECONDS, None)
            spent, count = lists_for(pid, LIST_SECONDS, path)
            bad = 0 if beating is None else beating.result()
            milliseconds = (spent - idle) / count * 1e3
            verdict = "met" if milliseconds <= aim else "MISSED"
            print(
                f"| GET {path}, 10,000 nodes, {beats} heartbeats/s | {milliseconds:.1f} ms of CPU"
                f" | | | {aim} ms | {verdict} | {bad} |",
                flush=True,
            )


def beat(rate: int) -> int:
    """Send heartbeats while a list is measured; return the bad answers."""
    load = SteadyLoad(PORT, rate=rate, hosts=10_000)
    _, _, bad = asyncio.run(load.run(2 * LIST_SECONDS + 2))
    return bad


def lists_for(pid: int, seconds: float, path: str | None) -> tuple[float, int]:
    """Ask for a list five times a second; return the CPU time in seconds and the answers."""
    before, ends, count = cpu_seconds(pid), time.monotonic() + seconds, 0
    with requests.Session() as session:
        session.headers.update({"Authorization": f"Bearer {KEY}", "Accept-Encoding": "identity"})
        while time.monotonic() < ends:
            if path is not None:
                session.get(f"http://127.0.0.1:{PORT}{path}", timeout=120).raise_for_status()
            count += 1
            time.sleep(LIST_PAUSE_SECONDS)
    return cpu_seconds(pid) - before, count


def search(bench: Bench) -> None:
    """Measure searches among 100,000 nodes, beside a prefix of a label that none has."""
    with bench.registry(100_000) as pid:
        get("/prometheus/rollcall")  # the nodes are read, then searches are prepared
        time.sleep(PREPARED_SECONDS)
        for query in SEARCHES:
            before = cpu_seconds(pid)
            seconds = sorted(answer_seconds(f"/nodes?{query}&limit=50") for _ in range(ANSWERS))
            spent = (cpu_seconds(pid) - before) / ANSWERS
            median, least, most = (
                1000 * each for each in (statistics.median(seconds), seconds[0], seconds[-1])
            )
            verdict = "met" if median <= SEARCH_MILLISECONDS else "MISSED"
            print(
                f"| {query}, 100,000 nodes | {median:.0f} ms ({least:.0f} to {most:.0f}),"
                f" {spent * 1e3:.0f} ms of CPU | | | {SEARCH_MILLISECONDS} ms | {verdict} | 0 |",
                flush=True,
            )


def answer_seconds(path: str) -> float:
    """Return how long an answer takes."""
    began = time.monotonic()
    get(path)
    return time.monotonic() - began


def fleet(bench: Bench) -> None:
    """Measure the memory with 100,000 nodes, at the start and after each kind of request."""
    size = 100_000
    with bench.registry(size) as pid:
        loaded = resident_mib(pid)
        get("/nodes")
        listed = resident_mib(pid)
        began = time.monotonic()
        get("/prometheus/rollcall")
        first = time.monotonic() - began
        rate = bench.wrk.posts(PORT, connections=128, hosts=size)
        print(
            f"| {size:,} nodes | {loaded} MiB, {listed} MiB after GET /nodes,"
            f" {resident_mib(pid)} MiB"
            f" after GET /prometheus of all ({first:.1f} s the first time) and"
            f" {rate.rate:,.0f} heartbeats/s | | | | | {rate.bad} |",
            flush=True,
        )


def million(bench: Bench, hosts: int, checkout: Path | None) -> None:
    """Compare heartbeats of many hosts with those of a thousand, and with bare handlers.

    With a checkout, compare them with those of its registry as well.
    """
    few = 1000
    load = partial(bench.wrk.posts, connections=128, kind="formatted")
    answer = bench.path("answer")
    answer.write_bytes(b"[{}]")
    with ExitStack() as stack:
        pid = stack.enter_context(bench.registry(hosts))
        small = stack.enter_context(bench.registry(few, port=PORT + 1))
        peer = stack.enter_context(bare(PEER, answer))
        loaded = resident_mib(pid)
        # The first heartbeat of each host is decoded: the store keeps no digests.
        first = load(PORT, hosts=hosts, seconds=math.ceil(hosts / FIRST_PER_SECOND))
        load(PORT + 1, hosts=few, seconds=5)
        ask_all = partial(load, hosts=hosts, seconds=math.ceil(hosts / PER_SECOND))
        large = pid, partial(ask_all, PORT)
        sides = [
            ("a thousand", (small, partial(load, PORT + 1, hosts=few)), 0.9),
            ("the bare handler", (peer, partial(load, PEER, hosts=few)), 2.0),
        ]
        if checkout is not None:
            theirs = stack.enter_context(bench.baseline(checkout, PEER + 1))
            load(PEER + 1, hosts=hosts, seconds=math.ceil(hosts / FIRST_PER_SECOND))
            sides.append((str(checkout), (theirs, partial(ask_all, PEER + 1)), 1.0))
        for what, side, aim in sides:
            bench.compare(f"{hosts:,} nodes, against {what}", large, side, aim=aim)
        print(
            f"| {hosts:,} nodes | {loaded} MiB, {resident_mib(pid)} MiB in the end;"
            f" {first.rate:,.0f}/s at first | | | 16,700/s | | {first.bad} |",
            flush=True,
        )


def cold_start(bench: Bench) -> None:
    """Measure the time from the start to the first answer, with 100,000 nodes."""
    config = bench.settings(100_000)
    url = f"http://127.0.0.1:{PORT}/nodes/host-000001.example.com"
    began = time.monotonic()
    with process([PROGRAM, "--config", config], url):
        seconds = time.monotonic() - began
    verdict = "met" if seconds <= 3 else "MISSED"
    print(f"| cold start, 100,000 nodes | {seconds:.2f} s | | | 3 s | {verdict} | 0 |", flush=True)


def main() -> None:
    """Run all parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts: dict[str, Callable[[Bench], None]] = {
        "heartbeats": heartbeats,
        "targets": targets,
        "nodes": nodes,
        "lists": lists,
        "search": search,
        "start": cold_start,
        "fleet": fleet,
    }
    parser.add_argument("--only", choices=[*parts, "million"])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--nodes", type=int, default=MILLION, help="instead of a million")
    parser.add_argument("--baseline", type=Path, help="another checkout, with its environment")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder:
        bench = Bench(folder=Path(folder), seconds=options.seconds, rounds=options.rounds)
        print("| what | registry: rate, CPU | peer | ratio; of CPU | at least | | bad answers |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        baseline = options.baseline and options.baseline.resolve()
        if baseline and options.only != "million":
            against_baseline(bench, baseline)
            return
        for name, part in parts.items():
            if options.only in {None, name}:
                part(bench)
        if options.million or options.only == "million":
            million(bench, options.nodes, baseline)


if __name__ == "__main__":
    main()
