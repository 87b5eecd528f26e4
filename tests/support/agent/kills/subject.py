"""The app that operations change: its preparation, requests to it, and its outcomes."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import docker
import docker.errors
import requests

from tests.support.agent.kills.changed_app import ChangedApp
from tests.support.agent.kills.engine_proxy import EngineProxy
from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.agent.kills.snapshot import Passwords, Snapshot, take_snapshot
from tests.support.daemons import Daemon
from tests.support.e2e.commands import change_settings

LIMITS = ((50, 32), (60, 40))  # percent of a core, MiB
# The page by which an app is healthy; a restart puts it back.
PAGE_CHECK = {"path": "/index.html", "interval_seconds": 1, "timeout_seconds": 5, "retries": 1}
PUT_PAGE_BACK = "busybox mv /www/away /www/index.html"
SERVE = "trap 'exit 0' TERM; httpd -f -p 8000 -h /www & wait"
# The networks of apps that are isolated, and of those that are not.
ISOLATED, OPEN = "rollcall", "bridge"
# The images declare a volume besides.
DATA, DECLARED = ["/srv"], "/data"
ASYNC = {"Prefer": "respond-async"}
# The agents have a short time limit. An engine on a loaded machine may take longer without a fault.
ATTEMPTS = 4


@dataclass(frozen=True)
class AppImages:
    """The images of an agent's apps.

    Attributes:
        good: ids of two images.
        crashing: the tag of an image whose app crashes at its start.
        crashing_later: the tag of an image whose app crashes after its password was set.
        pulled: the first good image's reference at a registry of images; each agent has another.
        removable: the reference at a registry of images of one that no other agent uses.

    """

    good: tuple[str, str]
    crashing: str
    crashing_later: str
    pulled: str = ""
    removable: str = ""


def image_id(client: docker.APIClient, tag: str) -> str:
    """Return the id of the image that a tag names."""
    (image,) = client.images(name=tag)
    return str(image["Id"])


def engine_was_slow(answer: requests.Response | None) -> bool:
    """Return whether the agent has answered that the engine took longer than the time limit.

    The engine has half of that to run `chpasswd`, which itself takes a moment here.
    """
    if answer is None:
        return False
    if answer.status_code == HTTPStatus.CONFLICT:
        return "the `chpasswd` of the app's image does not end" in answer.text
    slow = "does not answer in time" in answer.text
    return answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE and slow


class Subject(ChangedApp):
    """The app that operations change. Its image has a tag of its own, which can be moved."""

    def __init__(
        self, agent: Daemon, client: docker.APIClient, images: AppImages, proxy: EngineProxy
    ) -> None:
        super().__init__(ObservedApp(agent, client), proxy)
        self.images = images
        self.tag = f"rollcall-test-kills:{secrets.token_hex(4)}"
        self.tar = b""
        self.removed_image = ""
        self._ports: tuple[int, ...] = ()
        self.passwords = Passwords()
        self.passwords.new()

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
        return take_snapshot(self.app, self.passwords, self.images.good[0])

    def tagged_image(self) -> str:
        """Return the id of the image that the app's tag names."""
        return image_id(self.app.client, self.tag)

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
            record["container_id"] is None
            or (record["image"], record["data"], record["command"]) != (self.tag, DATA, [])
        ):
            self._must("DELETE", "")
            record = None
        if record is None:
            self.retag(self.images.good[0])
            record = self._create()
            self._ports = record["ssh_port"], record["http_port"]
        self._must("PUT", "/start")
        if record["password"] is None:
            self._must("PUT", "/keys", self.passwords.last)
        self.retag(self.app.client.inspect_container(record["container_id"])["Image"])
        self.app.write()

    def stopped(self) -> None:
        """Stop the app."""
        self.running()
        self._must("PUT", "/stop")

    def rebuilt(self) -> None:
        """Rebuild the app with the other good image; the revision before has the first one."""
        self.stopped()
        self.retag(next(each for each in self.images.good if each != self.tagged_image()))
        self._must("PUT", "/rebuild")
        self._must("PUT", "/start")

    def limited(self) -> None:
        """Give the app limits; the revision before has the others."""
        self.running()
        for cpu, memory in LIMITS:
            self._must("PUT", "", {"cpu": cpu, "memory": memory})

    def with_a_revision_that_fails(self) -> None:
        """Make the revision before the present one have an image that crashes."""
        self.stopped()
        for image in (self.images.crashing_later, self.tag):
            self._must("PUT", "", {"image": image})
        self._must("PUT", "/start")

    def stopped_with_tar(self) -> None:
        """Take a tar of the app's data, empty its volumes, and stop it."""
        self.running()
        answer = self.ask("GET", "/data")
        assert answer is not None
        assert answer.ok, answer.text
        self.tar = answer.content
        self.app.empty()
        self._must("PUT", "/stop")

    def stopped_with_pending_password(self) -> None:
        """Stop the app and set a password, which is pending until the start."""
        self.stopped()
        self._must("PUT", "/keys", self.passwords.new())

    def without_container(self) -> None:
        """Remove the app's container through the engine, without the agent."""
        self.running()
        self._must("PUT", "/keys", self.passwords.new())
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

    def absent_without_network(self) -> None:
        """Delete the app and its volumes, and the network of isolated apps, which nobody uses."""
        self.absent()
        with suppress(docker.errors.NotFound):
            self.app.client.remove_network(ISOLATED)

    def not_isolated_yet(self) -> None:
        """Make the app run as before `apps.isolated` was set."""
        self.running()
        self._restart(isolated=False)
        try:
            self._must("PUT", "/rebuild")
        finally:
            self._restart(isolated=True)

    def _restart(self, *, isolated: bool) -> None:
        """Restart the agent with another value of `apps.isolated`."""
        change_settings(self.app.agent, apps={"isolated": isolated})
        self.app.agent.restart()

    def running_as_pulled(self, image: str | None = None) -> None:
        """Make an app run whose image the agent has pulled, with new content in its volumes."""
        self.absent()
        created = self._undisturbed(lambda: self.post(image or self.images.pulled))
        assert created.status_code == HTTPStatus.CREATED, created.text
        self.app.write()

    def with_a_revision_whose_image_is_gone(self) -> None:
        """Make the revision before the present one have an image that was pulled and removed."""
        self.running_as_pulled(self.images.removable)
        record = self.app.record()
        assert record is not None
        self.removed_image = record["image_id"]
        self._must("PUT", "", {"image": self.tag})
        self.app.client.remove_image(self.removed_image, force=True)

    def checked(self) -> None:
        """Make the app run and pass its check."""
        self.running()
        self._must(
            "PUT",
            "",
            {"health": PAGE_CHECK, "command": ["/bin/sh", "-c", f"{PUT_PAGE_BACK}; {SERVE}"]},
        )
        self.until_up()

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

    def _create(self) -> dict[str, Any]:
        """Create the app; return its record."""
        created = self._undisturbed(self.post)
        if created.status_code != HTTPStatus.CREATED:
            # A creation before it, for which the engine was too slow, was done in the end.
            assert created.status_code == HTTPStatus.CONFLICT, created.text
        record = self.app.record()
        assert record is not None
        return record

    def _must(self, method: str, path: str, body: Any = None) -> None:
        answer = self._undisturbed(lambda: self.ask(method, path, body))
        # A deletion before it, for which the engine was too slow, was done in the end.
        gone = method == "DELETE" and answer.status_code == HTTPStatus.NOT_FOUND
        assert answer.ok or gone, answer.text

    def _undisturbed(self, ask: Callable[[], requests.Response | None]) -> requests.Response:
        """Return the answer to a request without a fault, sent again where the engine was slow."""
        answer, attempts = ask(), 1
        while engine_was_slow(answer) and attempts < ATTEMPTS:
            self.app.swept()
            answer, attempts = ask(), attempts + 1
        assert answer is not None
        return answer

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
            network=OPEN,
            volumes=dict.fromkeys((*DATA, DECLARED), "empty"),
        )

    def check_changeable(self) -> None:
        """Assert that the app can be changed, or that its name and ports can be used again."""
        record = self.app.record()
        if record is None:
            self._create()
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
