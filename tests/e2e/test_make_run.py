"""`make run`, as somebody at a terminal sees it."""

import os
import re
import secrets
import shlex
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeAlias

import docker
import docker.errors
import pytest
import requests

from dev.waiting import until
from tests.support.daemons import FreePort
from tests.support.e2e.make_run import READY_SECONDS, Run, running_make_run
from tests.support.machine.processes import command_lines

SOON_SECONDS = 10.0

TypeMakeRun: TypeAlias = Callable[[], AbstractContextManager[Run]]
Ports: TypeAlias = tuple[int, int]


@pytest.fixture
def app() -> str:
    return f"hello-{secrets.token_hex(4)}"


@pytest.fixture
def var(tmp_path: Path) -> Path:
    return tmp_path / "var"


@pytest.fixture
def ports(free_port: FreePort) -> Ports:
    """Return the ports of the registry and of the agent."""
    return free_port(), free_port()


@pytest.fixture
def make_run(var: Path, ports: Ports, app: str) -> TypeMakeRun:
    """Return what types `make run`, each time over the same state."""
    registry, agent = map(str, ports)
    return lambda: running_make_run(var, app=app, registry_port=registry, agent_port=agent)


@pytest.fixture
def leftovers(docker_client: docker.APIClient, app: str) -> Iterator[None]:
    """Take away what is meant to outlive `make run`: its app and its image."""
    yield
    with suppress(docker.errors.NotFound):
        docker_client.remove_container(app, force=True)
    with suppress(docker.errors.NotFound):
        docker_client.remove_volume(f"rollcall-{app}")
    with suppress(docker.errors.NotFound):
        docker_client.remove_image(f"rollcall-{app}", force=True)


pytestmark = [pytest.mark.real("make", "setsid"), pytest.mark.usefixtures("leftovers")]


def test_its_curl_lines_work_when_pasted_a_second_run_finds_the_state_and_a_kill_ends_all(
    make_run: TypeMakeRun, var: Path, app: str
) -> None:
    with make_run() as run:
        run.wait_until_ready()
        assert "fewer connections" not in run.screen.text()
        nodes, targets, create, listing, delete = run.curl_lines()
        (node,) = until(lambda: run.paste(nodes), "the node", within=SOON_SECONDS)
        found = run.paste(targets)
        assert isinstance(found, list), found  # no warm-up withholds them
        assert found[0]["targets"]
        created = run.paste(create)
        assert created.get("state") == "running", created
        page = f"http://127.0.0.1:{created['http_port']}/"
        assert "Hello" in until(lambda: _text(page), page, within=SOON_SECONDS)
        assert app in [record["name"] for record in run.paste(listing)]
        login, apps = run.command_lines()
        environment = f"ROLLCALL_CONFIG={shlex.quote(str(var / 'contexts.yml'))}"
        shown = run.paste(f"{environment} {login} && {environment} {apps} -o json")
        assert [record["app"] for record in shown] == [f"{node['hostname']}/{app}"]
        assert run.screen.press_ctrl_c() == 0
    ends = re.findall(r"^(agent|registry) .*stopping", run.screen.text(), re.MULTILINE)
    assert ends == ["agent", "registry"]
    with make_run() as run:
        run.wait_until_ready()
        assert run.curl_lines() == [nodes, targets, create, listing, delete]
        assert [again["hostname"] for again in run.paste(nodes)] == [node["hostname"]]
        records = {record["name"]: record for record in run.paste(listing)}
        assert records[app]["container_id"] == created["container_id"]
        run.paste(delete)
        assert app not in [record["name"] for record in run.paste(listing)]
        _kill(var)
    _assert_secrets_are_kept(var, run.screen.text())


def test_what_prevents_a_start_is_said_and_the_rest_is_ended(
    make_run: TypeMakeRun, var: Path, ports: Ports
) -> None:
    registry, port = ports
    with socket.create_server(("127.0.0.1", port)), make_run() as run:
        text = run.screen.wait_for("Error 1", within=READY_SECONDS)
        assert f"the agent cannot listen on 127.0.0.1:{port}: Address already in use" in text
    _assert_nobody_listens(registry)
    settings = var / "agent.yml"
    settings.write_text(settings.read_text() + "heartbeat: 30\n")
    with make_run() as run:
        text = run.screen.wait_for("Error 1", within=READY_SECONDS)
        line = len(settings.read_text().splitlines())
        assert f"{settings}:{line}: heartbeat: unknown setting" in text
    _assert_nobody_listens(registry)


def test_a_daemon_that_dies_is_said_and_the_rest_is_ended(
    make_run: TypeMakeRun, var: Path, ports: Ports
) -> None:
    with make_run() as run:
        run.wait_until_ready()
        os.kill(_pid(var / "agent.yml"), signal.SIGKILL)
        text = run.screen.wait_for("Error 1", within=READY_SECONDS)
        assert "rollcall: the agent was ended by SIGKILL" in text
    _assert_nobody_listens(ports[0])


def _kill(var: Path) -> None:
    """Kill `make run`, and wait for the end of the daemons."""
    os.kill(_pid(var, "dev.run"), signal.SIGKILL)
    daemons = var / "agent.yml", var / "registry.yml"
    until(lambda: not any(map(_pids, daemons)), "the end of both daemons", within=SOON_SECONDS)


def _pid(*words: str | Path) -> int:
    (found,) = _pids(*words)
    return found


def _pids(*words: str | Path) -> list[int]:
    """Return the processes that have all these words in their command lines, bar make."""
    wanted = {str(word) for word in words}
    return [pid for pid, given in command_lines() if given[0] != "make" and wanted <= set(given)]


def _assert_secrets_are_kept(var: Path, text: str) -> None:
    kept = sorted(var.glob("*.key"))
    assert [file.stem for file in kept] == ["agents", "host", "ops", "scraper"]
    for secret in (*kept, var / "ops.header"):
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.read_text().split()[-1] not in text


def _text(url: str) -> str | None:
    try:
        return requests.get(url, timeout=5).text
    except requests.ConnectionError:
        return None


def _assert_nobody_listens(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
