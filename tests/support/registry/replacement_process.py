"""Another program where a registry listened: it runs with that registry's settings and store."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from dev.waiting import until
from tests.support.daemons import Daemon

TOP = Path(__file__).parents[3]


@contextmanager
def replacement_process(registry: Daemon, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """End a registry and run a command in its place, until the context is left."""
    registry.terminate()
    with registry.log_path.open("ab") as log:
        process = subprocess.Popen(command, cwd=TOP, stdout=log, stderr=log)

    def listens() -> bool:
        assert process.poll() is None, registry.log()
        try:
            return requests.get(f"{registry.base_url}/healthz", timeout=5).ok
        except requests.ConnectionError:
            return False

    try:
        until(listens, "an answer", within=30)
        yield process
    finally:
        process.kill()
        process.wait()
