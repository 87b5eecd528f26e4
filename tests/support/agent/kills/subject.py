"""The app that operations change: its preparation, requests to it, and its outcomes."""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import docker.errors
import requests

from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.agent.kills.snapshot import Snapshot, take_snapshot
from tests.support.daemons import Daemon

LIMITS = ((50, 32), (60, 40))  # percent of a core, MiB
# The images declare a volume besides.
DATA, DECLARED = ["/srv"], "/data"
ASYNC = {"Prefer": "respond-async"}


@dataclass(frozen=True)
class AppImages:
    """The images of an agent's apps.

    Attributes:
        good: ids of two images.
        crashing: the tag of an image whose app crashes at its start.
        crashing_later: the tag of an image whose app crashes after its password was set.
        pulled: the first good image's reference at a registry of images; each agent has another.

    """

    good: tuple[str, str]
    crashing: str
    crashing_later: str
    pulled: str = ""


def image_id(client: docker.APIClient, tag: str) -> str:
    """Return the id of the image that a tag names."""
    (image,) = client.images(name=tag)
    return str(image["Id"])


class Subject:
    """The app that operations change. Its image has a tag of its own, which can be moved."""

    def __init__(self, agent: Daemon, client: docker.APIClient, images: AppImages) -> None:
        self.app = ObservedApp(agent, client)
        self.images = images
        self.tag = f"rollcall-test-kills:{secrets.token_hex(4)}"
        self._ports: tuple[int, ...] = ()
        self._passwords = [secrets.token_hex(8)]

    def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> requests.Response | None:
        """Send the agent a request for the app; None if the agent ended before it answered."""
        try:
            return self.app.agent.ask(method, self.app.path + path, json=body, **options)
        except requests.RequestException:
            return None

    def post(
        self, image: str | None = None, headers: dict[str, str] | None = None
    ) -> requests.Response | None:
        """Ask the agent to create the app; None if the agent ended before it answered."""
        with suppress(requests.RequestException):
            return self.app.agent.ask(
                "POST", "/v1/apps", json=self.body(image or self.tag), headers=headers
            )
        return None

    def body(self, image: str) -> dict[str, Any]:
        """Return the body that creates the app, with the ports of an earlier creation."""
        cpu, memory = LIMITS[0]
        fields: dict[str, Any] = {"name": self.app.name, "image": image, "data": DATA}
        fields |= {"env": {"VERSION": "1"}}
        ports = zip(("ssh_port", "http_port"), self._ports, strict=False)
        return fields | {"cpu": cpu, "memory": memory} | dict(ports)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the app, which no operation may change meanwhile."""
        return take_snapshot(self.app, reversed(self._passwords), self.images.good[0])

    @property
    def last_password(self) -> str:
        """The newest password."""
        return self._passwords[-1]

    def tagged_image(self) -> str:
        """Return the id of the image that the app's tag names."""
        return image_id(self.app.client, self.tag)

    def new_password(self) -> str:
        """Make a password and remember it."""
        self._passwords.append(secrets.token_hex(8))
        return self.last_password

    def retag(self, image: str) -> None:
        """Give the app's tag to this image."""
        repository, _, tag = self.tag.partition(":")
        self.app.client.tag(image, repository, tag=tag, force=True)

    def other_image(self, before: Snapshot) -> str:
        """Return the good image that the app does not run."""
        return next(each for each in self.images.good if each != before.image_id)

    # Preparation of operations.

    def running(self) -> None:
        """Make the app run, with a password and new content in its volumes."""
        record = self.app.record()
        if record is not None and (
            record["container_id"] is None or record["image"] != self.tag or record["data"] != DATA
        ):
            self._must("DELETE", "")
            record = None
        if record is None:
            self.retag(self.images.good[0])
            created = self.post()
            assert created is not None
            assert created.status_code == 201, created.text
            record = created.json()
            self._ports = record["ssh_port"], record["http_port"]
        self._must("PUT", "/start")
        if record["password"] is None:
            self._must("PUT", "/keys", self.last_password)
        self.retag(self.app.client.inspect_container(record["container_id"])["Image"])
        self.app.write()

    def stopped(self) -> None:
        """Stop the app."""
        self.running()
        self._must("PUT", "/stop")

    def stopped_with_pending_password(self) -> None:
        """Stop the app and set a password, which is pending until the start."""
        self.stopped()
        self._must("PUT", "/keys", self.new_password())

    def without_container(self) -> None:
        """Remove the app's container through the engine, without the agent."""
        self.running()
        self._must("PUT", "/keys", self.new_password())
        (container,) = self.app.containers()
        self.app.client.remove_container(container["Id"], force=True)

    def absent(self) -> None:
        """Delete the app and its volumes."""
        if not self._ports:
            self.running()
        if self.app.record() is not None:
            self._must("DELETE", "")
        self.app.delete()  # such as data that an earlier app has left
        self.retag(self.images.good[0])
        self.app.content = ""

    def absent_and_not_pulled(self) -> None:
        """Delete the app, its volumes and the reference of the image that is to be pulled."""
        self.absent()
        with suppress(docker.errors.ImageNotFound):
            self.app.client.remove_image(f"{self.images.pulled}:latest", force=True)

    def absent_with_data(self) -> None:
        """Delete the app and keep its volumes."""
        self.running()
        self._must("DELETE", "?keep_data=true")
        self.retag(self.images.good[0])

    def failed_with_data(self) -> None:
        """Keep the volumes of a deleted app, and make a creation of another one fail."""
        self.absent_with_data()
        answer = self.post(self.images.crashing, ASYNC)
        assert answer is not None
        assert answer.ok, answer.text
        self.app.settled()

    def _must(self, method: str, path: str, body: Any = None) -> None:
        answer = self.ask(method, path, body)
        assert answer is not None
        assert answer.ok, answer.text

    # Outcomes of operations.

    def created(self, _: Snapshot | None = None) -> Snapshot:
        """Return the app as it is after its creation."""
        body = self.body(self.tag)
        del body["name"]
        return Snapshot(
            **body,
            state="running",
            desired="running",
            labels=(),
            image_id=self.images.good[0],
            volumes=dict.fromkeys((*DATA, DECLARED), "empty"),
        )

    def check_changeable(self) -> None:
        """Assert that the app can be changed, or that its name and ports can be used again."""
        record = self.app.record()
        if record is None:
            created = self.post()
            assert created is not None
            assert created.status_code == 201, created.text
        elif record["state"] == "failed":
            self._must("DELETE", "")
        else:
            cpu = record["cpu"] + 1
            self._must("PUT", "", {"cpu": cpu})
            self._must("PUT", "", {"cpu": cpu - 1})

    def delete(self) -> None:
        """Remove the containers, the volumes and the tag."""
        self.app.delete()
        with suppress(docker.errors.ImageNotFound):
            self.app.client.remove_image(self.tag, force=True)
