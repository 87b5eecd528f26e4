"""Compares the agent with the engine: reads, rebuilds (also beside readers), and idling.

Measurements of the agent and the engine alternate, in one run, on the same containers. All traffic
stays on 127.0.0.1 and the engine's socket; all apps are deleted at the end.

    python bench/agent_bench.py                  # a few minutes
    python bench/agent_bench.py --idle 300       # idle for five minutes

Idle means: apps run, some with a health check, /metrics is read, and nobody asks for more.
"""

import argparse
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import docker

sys.path.insert(0, str(Path(__file__).parents[1]))

from processes import cpu_seconds, resident_mib, unused_port

from dev.images import build_busybox
from tests.support.daemons import Daemon, Daemons

SOCKET = "/var/run/docker.sock"
RUN_ID = f"bench-{secrets.token_hex(3)}"
CHECKED_APPS = 10
HEALTH = {"path": "/", "interval_seconds": 30}
SCRAPE_SECONDS = 15
FILTER = quote('{"label":["rollcall.app"]}')


class EngineConnection(HTTPConnection):
    """A kept-alive connection to the engine's API."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def get(connection: HTTPConnection, path: str, headers: dict[str, str]) -> float:
    """Send one GET; return its duration in milliseconds."""
    began = time.perf_counter()
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    assert response.status == 200, (path, response.status)
    return (time.perf_counter() - began) * 1000


def compare(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
    """Measure both alternately; print the medians and their ratio."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    mine, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"  agent {mine:.2f} ms, engine {peer:.2f} ms: {mine / peer:.2f} x (medians of {rounds})")


def create(agent: Daemon, image: str, count: int, *, first: int = 0, checked: int = 0) -> list[str]:
    """Create apps in parallel, the first ``checked`` with a health check; return their names."""
    names = [f"{RUN_ID}-{number}" for number in range(first, first + count)]

    def one(name: str) -> None:
        body: dict[str, object] = {"name": name, "image": image, "memory": 16}
        if name in names[:checked]:
            body["health"] = HEALTH
        answer = agent.ask("POST", "/v1/apps", json=body, timeout=300)
        assert answer.status_code == 201, answer.text

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, names))
    return names


def delete(agent: Daemon, names: list[str]) -> None:
    """Delete apps in parallel."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: agent.ask("DELETE", f"/v1/apps/{name}", timeout=300), names))


def compare_reads(agent: Daemon, engine: EngineConnection, names: list[str], rounds: int) -> None:
    """Compare the list with the engine's list, and one app with an inspect."""
    api = HTTPConnection(agent.base_url.removeprefix("http://"), timeout=60)
    key = {"Authorization": f"Bearer {agent.key}"}
    record = agent.ask("GET", f"/v1/apps/{names[0]}").json()
    print(f"GET /v1/apps, {len(names)} apps, against GET /containers/json of the same")
    path = f"/v1.41/containers/json?all=1&filters={FILTER}"
    compare(rounds, lambda: get(api, "/v1/apps", key), lambda: get(engine, path, {}))
    print("GET /v1/apps/NAME against the engine's inspect")
    path = f"/v1.41/containers/{record['container_id']}/json"
    compare(
        5 * rounds, lambda: get(api, f"/v1/apps/{names[0]}", key), lambda: get(engine, path, {})
    )


class DowntimeMeter:
    """A client that sends a request every 10 ms, to measure how long there is no answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._answers: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            connection = HTTPConnection("127.0.0.1", self._port, timeout=0.2)
            with suppress(OSError, HTTPException):
                connection.request("GET", "/")
                connection.getresponse().read()
                self._answers.append(time.perf_counter())
            connection.close()

    def down_time(self, change: Callable[[], object]) -> float:
        """Call ``change``; return the longest time without an answer, in milliseconds."""
        self._thread.start()
        time.sleep(0.3)
        change()
        time.sleep(1.0)
        self._stop.set()
        self._thread.join()
        moments = self._answers
        return max(later - earlier for earlier, later in pairwise(moments)) * 1000


def down_time(agent: Daemon, client: docker.APIClient, name: str, rounds: int) -> None:
    """Compare the down time of a rebuild with that of a stop and a start."""
    print("down time of a rebuild against stop and start of the same container")

    def record() -> dict[str, object]:
        return dict(agent.ask("GET", f"/v1/apps/{name}").json())

    def rebuild() -> None:
        answer = agent.ask("PUT", f"/v1/apps/{name}/rebuild")
        assert answer.ok, answer.text

    def restart() -> None:
        container = str(record()["container_id"])
        client.stop(container, timeout=10)
        client.start(container)

    port = int(str(record()["http_port"]))
    compare(
        rounds,
        lambda: DowntimeMeter(port).down_time(rebuild),
        lambda: DowntimeMeter(port).down_time(restart),
    )


@contextmanager
def reading_all_the_time(agent: Daemon, connections: int) -> Iterator[None]:
    """List the apps over many connections, without pause, while the context is open."""
    command = [sys.executable, str(Path(__file__).parent / "load" / "readers.py")]
    command += ["--port", agent.base_url.rpartition(":")[2], "--key-file", str(agent.key_path)]
    command += ["--connections", str(connections)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as readers:
        assert readers.stdout is not None
        assert readers.stdout.readline() == "reading\n"
        before = cpu_seconds(agent.pid)
        try:
            yield
        finally:
            used = cpu_seconds(agent.pid) - before
            counted, _ = readers.communicate("")
            print(f"  {connections} connections: {counted.strip()}, the agent's CPU {used:.1f} s")


def rebuild_seconds(agent: Daemon, name: str, rounds: int) -> list[float]:
    """Rebuild an app ``rounds`` times; return the duration of each in seconds."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = agent.ask("PUT", f"/v1/apps/{name}/rebuild", timeout=300)
        assert answer.ok, answer.text
        taken.append(time.perf_counter() - began)
    return taken


def rebuilds_beside_readers(agent: Daemon, name: str, rounds: int, connections: int) -> None:
    """Compare rebuilds beside many readers with rebuilds without readers."""
    print(f"a rebuild while {connections} connections list all apps, against one while nobody does")
    quiet = statistics.median(rebuild_seconds(agent, name, rounds))
    with reading_all_the_time(agent, connections):
        taken = rebuild_seconds(agent, name, rounds)
    busy = statistics.median(taken)
    print(
        f"  {busy:.2f} s (at most {max(taken):.2f}) against {quiet:.2f} s: {busy / quiet:.2f} x"
        f" (medians of {rounds})"
    )


def idle(agent: Daemon, apps: int, seconds: float) -> None:
    """Measure the agent's CPU time and memory, and the engine's CPU time, without changes."""
    engine = engine_pids()
    pids = [agent.pid, *engine]
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    ends = began + seconds
    while time.monotonic() < ends:
        assert agent.ask("GET", "/metrics").status_code == 200
        time.sleep(min(SCRAPE_SECONDS, max(0, ends - time.monotonic())))
    taken = time.monotonic() - began
    ours, *theirs = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
    print(
        f"idle with {apps} apps for {seconds:.0f} s ({CHECKED_APPS} checked each"
        f" {HEALTH['interval_seconds']} s, scraped each {SCRAPE_SECONDS} s):"
        f" {resident_mib(agent.pid)} MiB, {ours / taken * 100:.2f} % of a core;"
        f" the engine {sum(theirs) / taken * 100:.2f} %"
    )


def engine_pids() -> list[int]:
    """Return the ids of dockerd and of the containerd that it has started."""
    dockerd = int(Path("/var/run/docker.pid").read_text())
    children = Path(f"/proc/{dockerd}/task").glob("*/children")  # any thread may have started it
    return [dockerd, *(int(pid) for file in children for pid in file.read_text().split())]


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rebuilds", type=int, default=7)
    parser.add_argument("--readers", type=int, default=500)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--socket", default=SOCKET, help="of an engine that nobody else uses")
    options = parser.parse_args()
    url = f"unix://{options.socket}"
    client = docker.APIClient(base_url=url, version="auto", timeout=120)
    image = f"rollcall-bench:{RUN_ID}"
    build_busybox(client, image, page="Hello")
    with (
        tempfile.TemporaryDirectory() as folder,
        Daemons(folder=Path(folder, "daemons"), free_port=unused_port, forked=False) as daemons,
    ):
        agent = daemons.agent(
            engine=url, log={"level": "info"}, apps={"bind": "127.0.0.1", "cpu": 100}
        )
        names: list[str] = []
        try:
            names += create(agent, image, options.apps // 2, checked=CHECKED_APPS)
            idle(agent, len(names), options.idle)
            names += create(agent, image, options.apps - len(names), first=len(names))
            compare_reads(agent, EngineConnection(options.socket), names, options.rounds)
            print(f"resident after that: {resident_mib(agent.pid)} MiB")
            if options.rebuilds:
                down_time(agent, client, names[0], options.rebuilds)
                rebuilds_beside_readers(agent, names[0], options.rebuilds, options.readers)
        finally:
            delete(agent, names)
            client.remove_image(image, force=True)


if __name__ == "__main__":
    main()
