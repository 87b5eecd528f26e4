"""An app that operations are tried on: brought into the states that they need, and asked of."""

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


@dataclass(frozen=True)
class AppImages:
    """What an agent's apps are made of.

    Attributes:
        good: ids of two images.
        crashing: the tag of one whose app crashes at once.
        crashing_later: the tag of one whose app crashes once its password has been set.
        pulled: a reference to the first good image at a server of images, this agent's own.

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
    """An app that operations are tried on. Its image's tag is its own, so that it may be moved."""

    def __init__(self, agent: Daemon, client: docker.APIClient, images: AppImages) -> None:
        self.app = ObservedApp(agent, client)
        self.images = images
        self.tag = f"rollcall-test-kills:{secrets.token_hex(4)}"
        self._ports: tuple[int, ...] = ()
        self._passwords = [secrets.token_hex(8)]

    def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> requests.Response | None:
        """Ask the agent for something of the app; None if it went away under it."""
        try:
            return self.app.agent.ask(method, self.app.path + path, json=body, **options)
        except requests.RequestException:
            return None

    def post(
        self, image: str | None = None, headers: dict[str, str] | None = None
    ) -> requests.Response | None:
        """Ask the agent to create the app; None if it went away under it."""
        with suppress(requests.RequestException):
            return self.app.agent.ask(
                "POST", "/v1/apps", json=self.body(image or self.tag), headers=headers
            )
        return None

    def body(self, image: str) -> dict[str, Any]:
        """Return the app as it is asked for; once it had ports, with these."""
        cpu, memory = LIMITS[0]
        fields = {"name": self.app.name, "image": image, "env": {"VERSION": "1"}}
        ports = zip(("ssh_port", "http_port"), self._ports, strict=False)
        return fields | {"cpu": cpu, "memory": memory} | dict(ports)

    def snapshot(self) -> Snapshot:
        """Look at the app, which must be settled."""
        return take_snapshot(self.app, reversed(self._passwords), self.images.good[0])

    @property
    def last_password(self) -> str:
        """The password that was made last."""
        return self._passwords[-1]

    def tagged_image(self) -> str:
        """Return the id of the image that the app's tag names."""
        return image_id(self.app.client, self.tag)

    def new_password(self) -> str:
        """Make a password, and know it."""
        self._passwords.append(secrets.token_hex(8))
        return self.last_password

    def retag(self, image: str) -> None:
        """Tag this image with the app's tag."""
        repository, _, tag = self.tag.partition(":")
        self.app.client.tag(image, repository, tag=tag, force=True)

    def other_image(self, before: Snapshot) -> str:
        """Return the good image that the app does not run."""
        return next(each for each in self.images.good if each != before.image_id)

    # What the operations need.

    def running(self) -> None:
        """Have the app running with a password and new content."""
        record = self.app.record()
        if record is not None and record["container_id"] is None:
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
        """Have it stopped."""
        self.running()
        self._must("PUT", "/stop")

    def stopped_with_pending_password(self) -> None:
        """Have it stopped, with a password that waits for the start."""
        self.stopped()
        self._must("PUT", "/keys", self.new_password())

    def without_container(self) -> None:
        """Have its container gone behind the agent's back."""
        self.running()
        self._must("PUT", "/keys", self.new_password())
        (container,) = self.app.containers()
        self.app.client.remove_container(container["Id"], force=True)

    def absent(self) -> None:
        """Have nothing of it."""
        if not self._ports:
            self.running()
        if self.app.record() is not None:
            self._must("DELETE", "")
        self.app.delete()  # such as data that an earlier app has left
        self.retag(self.images.good[0])
        self.app.content = ""

    def absent_and_not_pulled(self) -> None:
        """Have nothing of it, nor the name of the image that is to be pulled."""
        self.absent()
        with suppress(docker.errors.ImageNotFound):
            self.app.client.remove_image(f"{self.images.pulled}:latest", force=True)

    def absent_with_data(self) -> None:
        """Have nothing of it but its data."""
        self.running()
        self._must("DELETE", "?keep_data=true")
        self.retag(self.images.good[0])

    def _must(self, method: str, path: str, body: Any = None) -> None:
        answer = self.ask(method, path, body)
        assert answer is not None
        assert answer.ok, answer.text

    # What comes of them.

    def created(self, _: Snapshot | None = None) -> Snapshot:
        """Return the app as it is once it was created."""
        body = self.body(self.tag)
        del body["name"]
        return Snapshot(
            **body,
            state="running",
            desired="running",
            labels=(),
            image_id=self.images.good[0],
            volume="empty",
        )

    def check_changeable(self) -> None:
        """Assert that the app can still be changed, or its name and ports used for a new one."""
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
        """Take away all that is left."""
        self.app.delete()
        with suppress(docker.errors.ImageNotFound):
            self.app.client.remove_image(self.tag, force=True)
