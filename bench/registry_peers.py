"""The peers of the registry's benchmark, each in its own process: etcd, and bare aiohttp.

python bench/registry_peers.py PORT FILE     # bare handlers; GET answers the file's content
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import requests
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[1]))

from registry_load import KEY

from dev.waiting import until
from registry.message import Heartbeat

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


@contextmanager
def process(command: Sequence[str | Path], url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the context is open; wait until it answers at the URL."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=ROOT) as server:
        try:
            until(lambda: _answers(server, url), url, within=START_SECONDS)
            yield server
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()


def _answers(server: subprocess.Popen[bytes], url: str) -> bool:
    if server.poll() is not None:
        raise SystemExit(f"{server.args!r} ended with {server.returncode}")
    with suppress(requests.RequestException):
        return requests.get(url, headers={"Authorization": f"Bearer {KEY}"}, timeout=5).ok
    return False


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
def bare(port: int, answer: Path) -> Iterator[int]:
    """Run the bare handlers; yield their process id."""
    command = [sys.executable, __file__, str(port), answer]
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
