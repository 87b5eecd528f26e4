"""How long heartbeats to a registry wait while clients ask it for something."""

import http.client
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import requests

from load.probe import Attempts, Probe, ProbeOptions
from load.registry_load import KEY

PROBE_INTERVAL_SECONDS = 0.004
# Each of them changes less often than a registry allows by default.
HOSTNAMES = [f"probe-{number}.fleet.test" for number in range(200)]
SETTLE_SECONDS = 1.0
# So long a row may take, and afterwards a registry may answer nobody.
ROW_SECONDS = 180.0
READ_BYTES = 1024 * 1024
MAX_LINE_BYTES = 4096
NONE = Attempts([], 0)
CONNECTIONS = 4
# With 4,000 services, some 800 KB.
LABELS = ",".join(f'"prometheus:s{n}:l{n}:{"v" * 170}"' for n in range(4000))
TIMEOUT_SECONDS = 60


class NoAnswerError(Exception):
    """The registry has answered nobody for long."""


class Waits(NamedTuple):
    """How long a request took, in seconds, and all heartbeats beside it.

    It `is_over` if it was not answered in time. `idle` are the heartbeats at the same time to a
    registry that nobody else asks: what they wait for is the machine. It is None if there is none.
    """

    seconds: float
    is_over: bool
    heartbeats: Attempts
    idle: Attempts | None

    def cells(self) -> str:
        """Return the cells of a row."""
        cells = [f" {'> ' * self.is_over}{self.seconds:.2f} s", *_percentiles(self.heartbeats)]
        cells.append(f" {self.heartbeats.rejected}")
        if self.idle is not None:
            cells += _percentiles(self.idle)
        return " |".join([*cells, ""])


def _percentiles(attempts: Attempts) -> list[str]:
    ordered = sorted(attempts.latencies)
    return [
        f" {seconds * 1e3:.0f} ms" for seconds in (ordered[int(len(ordered) * 0.99)], ordered[-1])
    ]


def host(port: int) -> Probe:
    """Return hosts that report in turn to the registry at a port."""
    url = f"http://127.0.0.1:{port}"
    return Probe(ProbeOptions(url, KEY, "", None, PROBE_INTERVAL_SECONDS, HOSTNAMES))


class Measured:
    """The registry at a port, and a host that reports to it; `idle` reports to another one."""

    def __init__(self, port: int, idle: Probe | None) -> None:
        self.port = port
        self._probe = host(port)
        self._idle = idle

    def waits_beside(self, path: str, headers: Mapping[str, str], clients: int) -> Waits:
        """Return how long heartbeats wait while so many clients ask once."""

        def ask() -> None:
            with ThreadPoolExecutor(clients) as threads:
                list(threads.map(lambda _: self._ask(path, headers), range(clients)))

        return self.waits(ask)

    def waits(self, ask: Callable[[], object]) -> Waits:
        """Return how long `ask` takes, and the heartbeats beside it."""
        time.sleep(SETTLE_SECONDS)
        self._attempts()
        began, is_over = time.monotonic(), False
        try:
            ask()
        except TimeoutError:
            is_over = True
        seconds = time.monotonic() - began
        time.sleep(PROBE_INTERVAL_SECONDS * 10)
        waits = Waits(seconds, is_over, *self._attempts())
        if is_over:
            self._wait_for_answers()
        return waits

    def _attempts(self) -> tuple[Attempts, Attempts | None]:
        return self._probe.attempts(), self._idle.attempts() if self._idle else None

    def _wait_for_answers(self) -> None:
        """Wait until the registry has done with what nobody waits for. Raises NoAnswerError."""
        ends = time.monotonic() + ROW_SECONDS
        while time.monotonic() < ends:
            with suppress(requests.RequestException):
                requests.get(f"http://127.0.0.1:{self.port}/healthz", timeout=SETTLE_SECONDS)
                return
        raise NoAnswerError

    def _ask(self, path: str, headers: Mapping[str, str]) -> None:
        for _ in self._answer(path, headers):
            pass

    def _answer(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield an answer as it comes. Raises TimeoutError."""
        ends = time.monotonic() + ROW_SECONDS
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ROW_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}", **headers})
            response = connection.getresponse()
            while data := response.read1(READ_BYTES):
                if time.monotonic() > ends:
                    raise TimeoutError
                yield data
        finally:
            connection.close()

    def listed(self) -> str:
        """Watch until all nodes were listed; return an id from which changes alone follow."""
        last_id, rest = "", b""
        for data in self._answer("/nodes?watch=true", {}):
            rest = rest[-MAX_LINE_BYTES:] + data
            ids = rest[rest.rfind(b"\nid: ", 0, rest.rfind(b"\n")) :].split(b"\n")
            last_id = ids[1].removeprefix(b"id: ").decode() if len(ids) > 1 else last_id
            if last_id.count("-") == 1:  # before, an id says how far the list is
                break
        return last_id

    def end(self) -> None:
        """End the host."""
        self._probe.end()


class LargePosts:
    """Sends heartbeats of one host, which each change its node, as fast as they are answered."""

    def __init__(self, port: int, hostname: str, key: str) -> None:
        self._port = port
        self._path = f"/nodes/{hostname}"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._numbers = count()

    def send(self, seconds: float) -> Mapping[int, int]:
        """Send for so long over all connections; return how many answers had which status."""
        ends = time.monotonic() + seconds
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            found = threads.map(lambda _: self._client(ends), range(CONNECTIONS))
            return sum(found, Counter[int]())

    def _client(self, ends: float) -> Counter[int]:
        statuses = Counter[int]()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        while time.monotonic() < ends:
            body = f'{{"labels":[{LABELS}],"kv":{{"number":"{next(self._numbers):06}"}}}}'
            connection.request("POST", self._path, body=body, headers=self._headers)
            response = connection.getresponse()
            response.read()
            statuses[response.status] += 1
        connection.close()
        return statuses
