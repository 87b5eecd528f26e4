"""The registries of the fleet's benchmark: one with SQLite, or several on a cluster of NATS."""

import argparse
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import requests
from jetstream_bench import pids_of
from load.registry_load import KEY
from load.simulators import Access, hostname
from processes import write_settings
from registry_bench import PROGRAM

from dev.waiting import until
from tests.support.certificates import Authority, Pair
from tests.support.registry.nats.servers import NatsCluster

NATS_SERVERS = 3


def unused_port() -> int:
    """Return an unused port of 127.0.0.1, outside the range of outgoing connections."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no free port between 20000 and 30000")


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
