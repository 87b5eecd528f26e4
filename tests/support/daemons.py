"""Both daemons as a host runs them: processes, by their console scripts or forked (`forks.py`)."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import requests
import yaml
from requests.adapters import HTTPAdapter

from clients.tls import client_context
from dev.waiting import until
from tests.support.forks import Program, start_program

# Eight daemons that start at once on two busy processors take 25 s each, beside other work longer.
START_SECONDS = 120.0
# TimeoutStopSec of the units: an agent may take 36 s, and longer on a machine under load.
STOP_SECONDS = 60.0
REQUEST_SECONDS = 60.0
# The CA to believe, and the certificate and key to show (None: none is asked for).
TlsOptions: TypeAlias = tuple[str, tuple[str, str] | None]
NO_ENGINE = "unix:///nonexistent/docker.sock"


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over others, mapping by mapping."""
    result = dict(base)
    for name, above in over.items():
        below = result.get(name)
        nested = isinstance(above, dict) and isinstance(below, dict)
        result[name] = merged(below or {}, above) if nested else above
    return result


class _AnyCa(HTTPAdapter):
    """Accepts the CAs that our own clients accept: from Python 3.13 on, urllib3 is stricter."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=client_context())


class Daemon:
    """One daemon: its process, how to ask it, and how to end it.

    Attributes:
        base_url: where it listens, such as ``http://127.0.0.1:40001``.
        key: a key that may read and write.
        key_path: the file that holds it.
        config_path: its settings; change them between ``terminate`` and ``start``.
        log_path: what it wrote, over all its starts.
        stop_seconds: how long ``close`` lets it take to end.
        prefix: a command that starts the one which follows it, which is a console script then.
        forked: whether its processes are forked; else each is started by the console script.

    """

    def __init__(
        self,
        *,
        program: str,
        folder: Path,
        port: int,
        settings: Mapping[str, Any],
        trust: TlsOptions | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.base_url = f"{'https' if 'tls' in settings else 'http'}://127.0.0.1:{port}"
        self.key = secrets.token_urlsafe(32)
        self.key_path = folder / "ops.key"
        self.config_path = folder / "config.yml"
        self.log_path = folder / "log"
        self.stop_seconds = STOP_SECONDS
        self.prefix: Sequence[str] = ()
        self.forked = False
        self._program = Path(sys.executable).with_name(program)
        self._process: Program | None = None
        self._session = requests.Session()
        self._session.trust_env = False  # REQUESTS_CA_BUNDLE would win over ``trust``
        if trust is not None:
            self._session.verify, self._session.cert = trust
            self._session.mount("https://", _AnyCa())
        self.key_path.touch(mode=0o600)
        self.key_path.write_text(self.key)
        own = {
            "listen": f"127.0.0.1:{port}",
            "store": f"sqlite:///{folder / 'store.db'}",
            "keys": [{"name": "ops", "file": "ops.key", "allow": ["read", "write"]}],
            "log": {"format": "console", "level": "info"},
        }
        self.config_path.write_text(yaml.safe_dump(merged(own, settings)))

    @property
    def port(self) -> int:
        """The port of `base_url`."""
        return int(self.base_url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The process id of the running daemon."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither ended nor killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start it and wait until it answers ``/healthz``."""
        assert self._process is None, "it runs already"
        self._process = start_program(
            [*self.prefix, self._program, "--config", self.config_path],
            stdout=self.log_path,
            stderr=self.log_path,
            forked=self.forked and not self.prefix,
        )
        until(self._answers, f"{self.base_url}/healthz", within=START_SECONDS)
        # The daemon closes a connection that has shown no key, maybe while the first request comes.
        self._session.close()

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit status."""
        self._running().terminate()
        return self.wait()

    def kill(self) -> None:
        """Send SIGKILL, as a crash, and wait."""
        self._running().kill()
        self.wait()

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self, within: float = STOP_SECONDS) -> int:
        """Wait for its end, so many seconds at most, and return the exit status."""
        status = self._running().wait(within)
        self._process = None
        return status

    def restart(self) -> None:
        """End it in order and start it again."""
        self.terminate()
        self.start()

    def close(self) -> None:
        """End it whatever its state is."""
        self._session.close()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self.wait(self.stop_seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            # With its cause, which leads to what the test itself failed at.
            raise AssertionError(f"SIGTERM did not end it:\n{self.log()}") from error

    def log(self) -> str:
        """Return what it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> requests.Response:
        """Send one request with the key; ``options`` are those of requests, such as ``json=``."""
        sent = {"Authorization": f"Bearer {self.key}"} | dict(headers or {})
        options = {"timeout": REQUEST_SECONDS} | options
        return self._session.request(method, self.base_url + path, headers=sent, **options)

    def _running(self) -> Program:
        assert self._process is not None, "it does not run"
        return self._process

    def _answers(self) -> bool:
        status = self._running().poll()
        if status is not None:
            self._process = None
            raise AssertionError(f"{self._program.name} ended with {status}:\n{self.log()}")
        try:
            status = self._session.get(f"{self.base_url}/healthz", timeout=5).status_code
        except requests.RequestException:
            return False
        # An agent serves without an engine too, and says so here.
        return status == HTTPStatus.OK or self._program.name == "rollcall-agent"


FreePort: TypeAlias = Callable[[], int]


class Daemons:
    """Starts daemons in folders of their own and ends them all at the end, the last one first.

    `prefix` is what the daemons are started with; `forked` is as in `Daemon`.
    """

    def __init__(self, *, folder: Path, free_port: FreePort, forked: bool = True) -> None:
        self._folder = folder
        self._free_port = free_port
        self._forked = forked
        self.prefix: Sequence[str] = ()
        self._started = 0
        self._closing = ExitStack()

    def registry(self, *, trust: TlsOptions | None = None, **settings: Any) -> Daemon:
        """Start a registry; ``settings`` are laid over those of the tests.

        With ``tls`` among them, ``trust`` is how the test then talks to it. Targets are not
        withheld after the first start, and nodes may change as often as they like, unless ``nodes``
        sets ``warm_up_seconds`` and ``changes_per_minute``.
        """
        base = {"nodes": {"warm_up_seconds": 0, "changes_per_minute": 0}}
        return self._start("rollcall-registry", merged(base, settings), trust)

    def agent(
        self,
        *,
        registries: Sequence[Daemon] = (),
        engine: str = NO_ENGINE,
        trust: TlsOptions | None = None,
        **settings: Any,
    ) -> Daemon:
        """Start an agent that reports to these registries; without ``engine`` it has none."""
        base = {
            "node": {"hostname": f"host-{secrets.token_hex(4)}.test", "labels_dir": "labels.d"},
            "registries": [
                {"url": registry.base_url, "key_file": str(registry.key_path)}
                for registry in registries
            ],
            "docker": {"url": engine},
            # Apps of tests share the engine's own network, and more memory than the host has.
            "apps": {
                "bind": "127.0.0.1",
                "settle_seconds": 1,
                "isolated": False,
                "overcommit_percent": 0,
            },
        }
        return self._start("rollcall-agent", merged(base, settings), trust)

    def _start(self, program: str, settings: Mapping[str, Any], trust: TlsOptions | None) -> Daemon:
        folder = self._folder / f"{program}-{self._started}"
        self._started += 1
        daemon = Daemon(
            program=program,
            folder=folder,
            port=self._free_port(),
            settings=settings,
            trust=trust,
        )
        daemon.prefix = self.prefix
        daemon.forked = self._forked
        self._closing.callback(daemon.close)
        daemon.start()
        return daemon

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all that it started, whichever of them does not end in order."""
        self._closing.__exit__(kind, error, trace)
