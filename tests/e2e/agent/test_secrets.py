"""No password, hash or key in any log, event, argument list, label or answer."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
import pytest

from tests.support.agent.containers import PASSWORD
from tests.support.daemons import Daemons
from tests.support.machine.processes import command_lines

pytestmark = pytest.mark.real

TOKEN = "env-token-7f3a9c"


@contextmanager
def seen_command_lines() -> Iterator[set[str]]:
    """Collect the argument lists of all processes that live meanwhile."""
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):  # a program in a container lives for longer
            seen.update(" ".join(arguments) for _, arguments in command_lines())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


STEPS = (
    ("PUT", "/keys", PASSWORD),
    ("PUT", "/keys", "ssh-rsa " + PASSWORD),
    ("PUT", "/rebuild", None),
    ("PUT", "/stop", None),
    ("PUT", "/start", None),
    ("GET", "", None),
)


@pytest.mark.console_script
def test_no_secret_is_seen_anywhere(
    daemons: Daemons, engine_url: str, ssh_image: str, docker_client: docker.APIClient
) -> None:
    began = int(time.time())
    settings = {"bind": "127.0.0.1", "stop_seconds": 1}
    agent = daemons.agent(engine=engine_url, apps=settings)
    name = f"secret-{began}-{agent.pid}"
    path = f"/v1/apps/{name}"
    body = {"name": name, "image": ssh_image, "memory": 128, "env": {"TOKEN": TOKEN}}
    answers: list[Any] = []
    labels = ""
    with seen_command_lines() as seen:
        assert agent.ask("POST", "/v1/apps", json=body).status_code == 201
        for method, at, data in STEPS:
            headers = {"Content-Type": "text/plain"} if data else {}
            answers.append(agent.ask(method, path + at, data=data, headers=headers).text)
        for container in docker_client.containers(filters={"name": name}):
            labels = json.dumps(container["Labels"])
        answers.append(agent.ask("DELETE", path).text)
    ended = int(time.time()) + 1
    events = [str(event) for event in docker_client.events(since=began, until=ended, decode=True)]

    assert any("chpasswd" in event for event in events), "the events hold argument lists"
    hashed = "$6$"
    for secret in (PASSWORD, hashed):
        assert secret not in "".join(answers)
        assert secret not in agent.log()
        assert not [event for event in events if secret in event]
        assert not [line for line in seen if secret in line and "pytest" not in line]
        assert secret not in labels
    assert TOKEN not in agent.log()
    assert TOKEN not in labels
    assert not [event for event in events if TOKEN in event]
    assert agent.key not in agent.log()
    assert not [line for line in seen if agent.key in line]
