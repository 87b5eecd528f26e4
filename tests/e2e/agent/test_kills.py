"""An agent killed at any moment: each change is finished or never was, and nothing is lost.

A handful of kills in each run; ``ROLLCALL_KILLS=100`` asks for more, ``ROLLCALL_SEED`` for the same
moments again.
"""

import io
import logging
import os
import random
import secrets
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import docker
import docker.errors
import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

LOG = logging.getLogger(__name__)
KILLS = int(os.environ.get("ROLLCALL_KILLS", "7"))
# Each operation, with how long it takes at most: the kill comes at any moment of that.
OPERATIONS = {
    "create": 1.8,
    "rebuild": 1.8,
    "ports": 1.8,
    "limits": 0.15,
    "stop": 0.5,
    "start": 1.5,
    "delete": 0.6,
}


class ObservedApp:
    """An app of an agent that gets killed, and what is known of the app from outside."""

    def __init__(
        self, agent: Daemon, client: docker.APIClient, image: str, rng: random.Random
    ) -> None:
        self.name = f"victim-{secrets.token_hex(4)}"
        self._agent, self._client, self._image = agent, client, image
        self._rng = rng
        self._content = ""

    @property
    def path(self) -> str:
        return f"/v1/apps/{self.name}"

    def record(self) -> dict[str, Any] | None:
        answer = self._agent.ask("GET", self.path)
        assert answer.status_code in (200, 404), answer.text
        record: dict[str, Any] = answer.json()
        return record if answer.ok else None

    def prepare(self, operation: str) -> None:
        """Have the app as the operation needs it, with content in its volume."""
        body = {"name": self.name, "image": self._image, "memory": 32, "cpu": 50}
        if self.record() is None:
            assert self._agent.ask("POST", "/v1/apps", json=body).status_code == 201
        assert self._agent.ask("PUT", self.path + "/start").ok
        self._write()
        if operation == "create":
            assert self._agent.ask("DELETE", self.path + "?keep_data=true").ok
        if operation == "start":
            assert self._agent.ask("PUT", self.path + "/stop").ok

    def _write(self) -> None:
        record = self.record()
        assert record is not None
        self._content = secrets.token_hex(8)
        script = f"printf %s {self._content} > /srv/file"
        made = self._client.exec_create(record["container_id"], ["/bin/sh", "-c", script])
        self._client.exec_start(made["Id"])

    def request(self, operation: str) -> Callable[[], None]:
        """Return what asks for the operation, whether or not somebody is there to answer."""
        record = {} if operation == "create" else self.record() or {}
        body = {"name": self.name, "image": self._image, "memory": 32, "cpu": 50}
        swapped = {"ssh_port": record.get("http_port"), "http_port": record.get("ssh_port")}
        limits = {"memory": self._rng.randrange(20, 60), "cpu": self._rng.randrange(20, 90)}
        keep = "?keep_data=true" * self._rng.randrange(2)
        method, path, json = {
            "create": ("POST", "/v1/apps", body),
            "rebuild": ("PUT", self.path + "/rebuild", None),
            "ports": ("PUT", self.path, swapped),
            "limits": ("PUT", self.path, limits),
            "stop": ("PUT", self.path + "/stop", None),
            "start": ("PUT", self.path + "/start", None),
            "delete": ("DELETE", self.path + keep, None),
        }[operation]

        def ask() -> None:
            with suppress(requests.RequestException):
                self._agent.ask(method, path, json=json)

        return ask

    def settled(self) -> dict[str, Any] | None:
        """Return the record once no change is under way, None if there is no app."""

        def quiet() -> bool:
            record = self.record()
            return record is None or record["progress"] is None

        until(quiet, "the end of the change", within=60)
        return self.record()

    def check(self) -> None:
        """See that record, container and data agree."""
        record, containers = self.settled(), self.containers()
        if record is None:
            assert containers == []
            return
        (container,) = containers
        assert record["container_id"] == container["Id"]
        seen = self._client.inspect_container(container["Id"])
        assert seen["Name"] == f"/{self.name}"
        assert record["state"] == ("running" if record["desired"] == "running" else "exited")
        host = seen["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == record["memory"] << 20
        assert host["CpuQuota"] == record["cpu"] * 1000
        bindings = {int(each[0]["HostPort"]) for each in host["PortBindings"].values()}
        assert bindings == {record["ssh_port"], record["http_port"]}
        assert self._read(container["Id"]) == self._content

    def containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.containers(
            all=True, filters={"label": f"rollcall.app={self.name}"}
        )
        return found

    def _read(self, container_id: str) -> str:
        chunks, _ = self._client.get_archive(container_id, "/srv/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile("file")
            assert file is not None
            return file.read().decode()

    def delete(self) -> None:
        """Take away all that is left."""
        for container in self.containers():
            self._client.remove_container(container["Id"], force=True)
        with suppress(docker.errors.NotFound):
            self._client.remove_volume(f"rollcall-{self.name}")


@pytest.fixture
def rng() -> random.Random:
    """Return the source of the moments; its seed is printed."""
    seed = os.environ.get("ROLLCALL_SEED") or secrets.token_hex(4)
    LOG.warning("ROLLCALL_SEED=%s", seed)
    return random.Random(seed)


@pytest.fixture
def agent_and_app(
    daemons: Daemons,
    engine_url: str,
    docker_client: docker.APIClient,
    busybox_image: str,
    rng: random.Random,
) -> Iterator[tuple[Daemon, ObservedApp]]:
    """Yield an agent and its app."""
    settings = {"bind": "127.0.0.1", "stop_seconds": 1}
    agent = daemons.agent(engine=engine_url, apps=settings)
    app = ObservedApp(agent, docker_client, busybox_image, rng)
    yield agent, app
    app.delete()


def test_a_kill_at_any_moment_leaves_one_container_or_none_and_the_data(
    agent_and_app: tuple[Daemon, ObservedApp], rng: random.Random
) -> None:
    agent, app = agent_and_app
    names = list(OPERATIONS)
    for round_ in range(KILLS):
        operation = names[round_ % len(names)]
        app.prepare(operation)
        delay = rng.uniform(0, OPERATIONS[operation])

        request = threading.Thread(target=app.request(operation))
        request.start()
        threading.Event().wait(delay)  # the moment is what is tested
        agent.kill()
        request.join()
        agent.start()

        LOG.warning("%d: %s killed after %.3f s", round_, operation, delay)
        app.check()
