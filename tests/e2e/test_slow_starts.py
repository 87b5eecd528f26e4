"""Starts that take long: a daemon is ready for systemd only when it answers requests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.httpd.notify_socket import NotifySocket

pytestmark = pytest.mark.real
TOP = Path(__file__).parents[2]
READY = "READY=1"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    """Yield the socket at which systemd listens."""
    with NotifySocket(tmp_path / "notify") as listening:
        yield listening


@contextmanager
def starting(daemon: Daemon, systemd: NotifySocket, *command: str | Path) -> Iterator[None]:
    """End a daemon, and run a command in its place that shows systemd how it is."""
    daemon.terminate()
    with daemon.log_path.open("ab") as log:
        environment = {**os.environ, **systemd.environ}
        process = subprocess.Popen(command, cwd=TOP, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def states(systemd: NotifySocket) -> list[str]:
    """Return the first line of each message that waits."""
    found = []
    while not systemd.is_silent():
        found.append(next_state(systemd))
    return found


def next_state(systemd: NotifySocket) -> str:
    """Return the first line of the next message."""
    message, descriptors = systemd.next_with_descriptors()
    for each in descriptors:
        os.close(each)
    return message.partition("\n")[0]


def wait_until_ready(systemd: NotifySocket) -> None:
    """Return as soon as the daemon is ready."""
    while next_state(systemd) != READY:
        pass


def test_a_registry_is_ready_only_once_its_store_is_loaded(
    daemons: Daemons, systemd: NotifySocket, tmp_path: Path
) -> None:
    registry, pipe = daemons.registry(), tmp_path / "pipe"
    registry.ask("POST", "/nodes/web-1", json={"labels": [], "kv": {}})
    os.mkfifo(pipe)
    module = "tests.support.registry.stores.slow_to_load"

    def rejects() -> bool:
        try:
            return registry.ask("GET", "/nodes").status_code == HTTPStatus.SERVICE_UNAVAILABLE
        except requests.ConnectionError:
            return False

    with starting(registry, systemd, sys.executable, "-m", module, registry.config_path, pipe):
        with pipe.open("w"):  # as soon as it loads
            until(rejects, "a rejection", within=30)
            reported = states(systemd)
        wait_until_ready(systemd)
        answer = registry.ask("GET", "/nodes/web-1")

    assert "EXTEND_TIMEOUT_USEC=30000000" in reported
    assert READY not in reported
    assert answer.status_code == HTTPStatus.OK


def test_an_agent_is_ready_only_once_it_has_read_its_state(
    daemons: Daemons, systemd: NotifySocket
) -> None:
    agent = daemons.agent()
    state = agent.config_path.parent / "identity.json"
    program = Path(sys.executable).with_name("rollcall-agent")
    text, written = state.read_text(), state.with_name("written.json")
    state.rename(written)
    os.mkfifo(state)

    with starting(agent, systemd, program, "--config", agent.config_path):
        with state.open("w") as pipe:  # as soon as it reads its state
            reported = states(systemd)
            written.replace(state)  # which it reads once more before it writes
            pipe.write(text)
        wait_until_ready(systemd)
        answer = agent.ask("GET", "/access")

    assert READY not in reported
    assert answer.status_code == HTTPStatus.OK
