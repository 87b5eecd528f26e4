"""Servers in processes of their own, what they use, and peers: etcd, and bare aiohttp.

python bench/processes.py PORT FILE     # bare handlers; GET answers the file's content
"""

import hashlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import requests
import yaml
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.registry_load import KEY

from clients.message import Heartbeat
from dev.waiting import until

ROOT = Path(__file__).parents[1]
START_SECONDS = 600.0  # a million nodes on a busy machine


class BareHandlers:
    """Minimal handlers: check the key, decode the same body, answer bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._decode = msgspec.json.Decoder(Heartbeat).decode
        self._keys = {hashlib.sha256(KEY.encode()).digest()}

    async def post(self, request: web.Request) -> web.Response:
        """Check the key, and decode the body."""
        self._check(request)
        self._decode(await request.read())
        return web.Response(body=b"[{}]", content_type="application/json")

    async def get(self, _request: web.Request) -> web.Response:
        """Answer with the file's content."""
        return web.Response(body=self._answer, content_type="application/json")

    def _check(self, request: web.Request) -> None:
        key = request.headers["Authorization"].removeprefix("Bearer ")
        if hashlib.sha256(key.encode()).digest() not in self._keys:
            raise web.HTTPUnauthorized


def unused_port() -> int:
    """Return an unused port of 127.0.0.1, outside the range of outgoing connections."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no free port between 20000 and 30000")


def write_settings(file: Path, port: int, **settings: object) -> Path:
    """Write the settings of a registry that all benchmarks have, and these; return their file."""
    key = {"name": "bench", "value": KEY, "allow": ["read", "write"]}
    file.write_text(yaml.safe_dump({"listen": f"127.0.0.1:{port}", "keys": [key], **settings}))
    return file


@contextmanager
def process(command: Sequence[str | Path], url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the context is open; wait until it answers at the URL.

    Ends the benchmark if another process listens there, which would be measured instead.
    """
    with started(command, url) as server:
        wait_for(server, url)
        yield server


def wait_for(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait until a server answers at the URL."""
    until(lambda: _answers(server, url), url, within=START_SECONDS)


@contextmanager
def started(command: Sequence[str | Path], url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that is to listen at the URL while the context is open."""
    _require_free(url)
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=ROOT) as server:
        try:
            yield server
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()


def _require_free(url: str) -> None:
    address = urlsplit(url)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.hostname, address.port))
        except OSError as error:
            raise SystemExit(f"{address.netloc} is not free: {error.strerror}") from error


def _answers(server: subprocess.Popen[bytes], url: str) -> bool:
    if server.poll() is not None:
        raise SystemExit(f"{server.args!r} ended with {server.returncode}")
    with suppress(requests.RequestException):
        return requests.get(url, headers={"Authorization": f"Bearer {KEY}"}, timeout=5).ok
    return False


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, with all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


@contextmanager
def etcd(folder: Path, port: int) -> Iterator[int]:
    """Run Debian's etcd in an empty folder; yield its process id."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    command = ["etcd", "--data-dir", str(folder), "--log-level", "error"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}"]
    with process(command, f"{client}/health") as server:
        yield server.pid


@contextmanager
def etcd_cluster(
    folder: Path, next_port: Callable[[], int], size: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Run a cluster of etcd; yield the ports for clients, and the process ids."""
    clients, peers = ([next_port() for _ in range(size)] for _ in range(2))
    known = ",".join(f"e{peer}=http://127.0.0.1:{peer}" for peer in peers)
    with ExitStack() as stack:
        servers = []
        for port, peer in zip(clients, peers, strict=True):
            client, own = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
            command = ["etcd", "--name", f"e{peer}", "--data-dir", str(folder / f"e{peer}")]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", own, "--initial-advertise-peer-urls", own]
            command += ["--initial-cluster", known, "--log-level", "error"]
            servers.append(stack.enter_context(started(command, client)))
        for server, port in zip(servers, clients, strict=True):
            wait_for(server, f"http://127.0.0.1:{port}/health")
        yield clients, [server.pid for server in servers]


@contextmanager
def bare(port: int, answer: Path) -> Iterator[int]:
    """Run the bare handlers; yield their process id."""
    command: list[str | Path] = [sys.executable, __file__, str(port), answer]
    with process(command, f"http://127.0.0.1:{port}/p/x") as server:
        yield server.pid


def main() -> None:
    """Serve the bare handlers."""
    handlers = BareHandlers(Path(sys.argv[2]).read_bytes())
    app = web.Application()
    app.router.add_post("/nodes/{hostname}", handlers.post)
    app.router.add_get("/{kind}/{service}", handlers.get)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
