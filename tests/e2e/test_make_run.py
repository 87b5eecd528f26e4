"""`make run`, as somebody at a terminal sees it."""

import os
import re
import secrets
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import docker
import docker.errors
import msgspec
import pytest
import requests

from dev.waiting import until
from tests.conftest import FreePort
from tests.terminal import Terminal, terminal

TOP = Path(__file__).parents[2]
READY = "Ctrl-C ends it all"
READY_SECONDS = 120.0
SOON = 10.0

OpenTerminal: TypeAlias = Callable[[], AbstractContextManager[Terminal]]


@pytest.fixture
def app() -> str:
    return f"hello-{secrets.token_hex(4)}"


@pytest.fixture
def make_run(tmp_path: Path, free_port: FreePort, app: str) -> OpenTerminal:
    """Give what starts `make run`, each time over the same state."""
    options = [
        *("--var", str(tmp_path / "var"), "--app", app),
        *("--registry", f"127.0.0.1:{free_port()}", "--agent", f"127.0.0.1:{free_port()}"),
    ]
    command = ["make", "--no-print-directory", "run", f"RUN={shlex.join(options)}"]
    return lambda: terminal(command, folder=TOP, environment=os.environ)


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


@pytest.mark.real
@pytest.mark.usefixtures("engine_url", "leftovers")
def test_its_curl_lines_work_when_pasted_and_a_second_run_finds_the_state(
    make_run: OpenTerminal, tmp_path: Path, app: str
) -> None:
    with make_run() as screen:
        nodes, targets, create, listing, delete = _curl_lines(screen)
        (node,) = until(lambda: _paste(nodes), "the node", within=SOON)
        assert _paste(targets)[0]["targets"]
        created = _paste(create)
        assert created["state"] == "running"
        page = f"http://127.0.0.1:{created['http_port']}/"
        assert "Hello" in until(lambda: _text(page), page, within=SOON)
        assert app in [record["name"] for record in _paste(listing)]
        assert screen.press_ctrl_c() == 0
    _assert_ended_in_order(screen.text())
    with make_run() as screen:
        assert _curl_lines(screen) == [nodes, targets, create, listing, delete]
        assert [again["hostname"] for again in _paste(nodes)] == [node["hostname"]]
        records = {record["name"]: record for record in _paste(listing)}
        assert records[app]["container_id"] == created["container_id"]
        _paste(delete)
        assert app not in [record["name"] for record in _paste(listing)]
        assert screen.press_ctrl_c() == 0
    for secret in (tmp_path / "var").glob("*.key"):
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.read_text().strip() not in screen.text()


def test_an_address_in_use_is_said_and_ends_the_rest(
    make_run: OpenTerminal, tmp_path: Path
) -> None:
    with make_run() as screen:
        _curl_lines(screen)
        assert screen.press_ctrl_c() == 0
    listen = re.search(r"listen: 127.0.0.1:(\d+)", (tmp_path / "var/agent.yml").read_text())
    assert listen is not None
    with socket.create_server(("127.0.0.1", int(listen[1]))), make_run() as screen:
        text = screen.wait_for("Error 1", within=READY_SECONDS)
    assert f"the agent cannot listen on 127.0.0.1:{listen[1]}: Address already in use" in text
    _assert_closed(tmp_path / "var/registry.yml")


def test_wrong_settings_are_said_and_end_the_rest(make_run: OpenTerminal, tmp_path: Path) -> None:
    with make_run() as screen:
        _curl_lines(screen)
        assert screen.press_ctrl_c() == 0
    settings = tmp_path / "var/agent.yml"
    settings.write_text(settings.read_text() + "heartbeat: 30\n")
    with make_run() as screen:
        text = screen.wait_for("Error 1", within=READY_SECONDS)
    assert f"{settings}: heartbeat: unknown setting" in text
    _assert_closed(tmp_path / "var/registry.yml")


def _curl_lines(screen: Terminal) -> list[str]:
    text = screen.wait_for(READY, within=READY_SECONDS)
    return re.findall(r"^\s+(curl .*)$", text, re.MULTILINE)


def _paste(line: str) -> Any:
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, cwd="/")
    return msgspec.json.decode(done.stdout)


def _text(url: str) -> str | None:
    try:
        return requests.get(url, timeout=5).text
    except requests.ConnectionError:
        return None


def _assert_ended_in_order(text: str) -> None:
    ends = re.findall(r"^(agent|registry) .*stopping", text, re.MULTILINE)
    assert ends == ["agent", "registry"]


def _assert_closed(settings: Path) -> None:
    listen = re.search(r"listen: 127.0.0.1:(\d+)", settings.read_text())
    assert listen is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(listen[1])), timeout=5)
