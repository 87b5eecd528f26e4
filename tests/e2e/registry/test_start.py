"""The answers to hosts while a registry with many nodes starts."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from shutil import copy
from threading import Thread

import pytest
import requests

from registry.daemon import KEPT_QUIET_SECONDS
from tests.support.daemons import Daemon, Daemons
from tests.support.registry.load.large_fleet import rows
from tests.support.registry.stores.sqlite_store import ignore, open_store

pytestmark = pytest.mark.real
NODES = 40_000
# Starts a program as systemd does with a socket that it has kept: at descriptor 3.
WITH_KEPT_SOCKET = """
import os, socket, sys
kept = socket.create_server(("127.0.0.1", int(sys.argv[1])))
os.dup2(kept.fileno(), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x.socket"}
os.execv(sys.argv[2], sys.argv[2:])
"""
LOADING = (HTTPStatus.SERVICE_UNAVAILABLE, "1")
ACCEPTED = (HTTPStatus.OK, None)
HEARTBEAT: dict[str, object] = {"labels": [], "kv": {}}
Answer = tuple[int, str | None]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of many nodes."""
    path = tmp_path_factory.mktemp("filled") / "registry.db"

    async def fill() -> None:
        async with open_store(path) as (store, _):
            await asyncio.gather(*[store.put(row, ignore) for row in rows(NODES)])

    asyncio.run(fill())
    return path


@pytest.fixture
def registry(daemons: Daemons, filled: Path, tmp_path: Path) -> Daemon:
    """Return a registry of many nodes that has ended."""
    path = tmp_path / "registry.db"
    registry = daemons.registry(store=f"sqlite:///{path}")
    registry.terminate()
    copy(filled, path)
    return registry


@contextmanager
def reporting(registry: Daemon) -> Iterator[list[Answer]]:
    """Have a host report while it has to ask again; yield the statuses, with Retry-After."""
    answers: list[Answer] = []

    def report() -> None:
        url, headers = f"{registry.base_url}/nodes/h1", {"Authorization": f"Bearer {registry.key}"}
        while answers[-1:] in ([], [LOADING]):
            try:
                answer = requests.post(url, json=HEARTBEAT, headers=headers, timeout=60)
            except requests.ConnectionError:
                continue
            answers.append((answer.status_code, answer.headers.get("Retry-After")))

    host = Thread(target=report, daemon=True)
    host.start()
    yield answers
    host.join()


def test_a_host_has_to_ask_again_while_many_nodes_are_loaded(
    registry: Daemon,
) -> None:
    with reporting(registry) as answers:
        registry.start()

    assert answers[0] == LOADING
    assert set(answers) == {LOADING, ACCEPTED}


def test_a_host_waits_while_nodes_are_loaded_where_the_socket_was_kept(
    registry: Daemon,
) -> None:
    registry.prefix = [sys.executable, "-c", WITH_KEPT_SOCKET, str(registry.port)]

    began = time.monotonic()
    with reporting(registry) as answers:
        registry.start()

    # It has to ask again only where loading takes that long.
    assert answers[0] == ACCEPTED or time.monotonic() - began >= KEPT_QUIET_SECONDS
