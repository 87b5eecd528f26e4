"""An image that the agent pulled is removed, however its pull or removal is interrupted."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import docker
import pytest
import requests

from dev.waiting import until
from tests.support.agent.containers import derived_image, has_image
from tests.support.agent.image_registry import PASSWORD, USER, ImageRegistry, image_registry
from tests.support.agent.kills.engine_proxy import Call, EngineProxy, Fault, Moment
from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.daemons import Daemons, FreePort
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("docker-registry", "perl")
PULL, REMOVAL = Call("POST /images/create", 1), Call("DELETE /images/ID", 1)
IMAGES = ("new", "other")
# A late answer takes so long.
TIMEOUT_SECONDS = 6
PULL_SECONDS = 15


class PullingAgent:
    """An agent behind a proxy, with two images that are at a server and not on this host."""

    def __init__(
        self, app: ObservedApp, proxy: EngineProxy, client: docker.APIClient, images: Sequence[str]
    ) -> None:
        self.app, self.proxy = app, proxy
        self.image, self.other = images
        self._client = client

    def create(self, image: str) -> None:
        """Create the app, which pulls its image; the agent may end meanwhile."""
        body = {"name": self.app.name, "image": image, "memory": 32}
        with suppress(requests.ConnectionError):
            self.app.agent.ask("POST", "/v1/apps", json=body)

    def pull_by_hand(self) -> None:
        """Pull the image as somebody else does."""
        login = {"username": USER, "password": PASSWORD}
        self._client.pull(self.image, tag="latest", auth_config=login)

    def is_here(self, image: str) -> bool:
        """Return whether an image is on this host."""
        return has_image(self._client, f"{image}:latest")

    def until_gone(self, image: str) -> None:
        """Wait until an image is removed."""
        until(lambda: not self.is_here(image), "the removal of the image", within=30)


@pytest.fixture(scope="module")
def server(
    docker_client: docker.APIClient,
    busybox_image: str,
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
) -> Iterator[ImageRegistry]:
    """Yield a server of images that has both."""
    with image_registry(tmp_path_factory.mktemp("server") / "images", free_port()) as server:
        for name in IMAGES:
            with derived_image(docker_client, busybox_image, f"ENV NAME={name}") as built:
                server.push(docker_client, built, name)
        yield server


@pytest.fixture
def pulling(
    daemons: Daemons,
    engine_url: str,
    docker_client: docker.APIClient,
    tmp_path: Path,
    server: ImageRegistry,
) -> Iterator[PullingAgent]:
    """Yield such an agent."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with EngineProxy(path=tmp_path / "engine", engine_url=engine_url) as proxy:
        login = {"server": server.server, "user": USER, "password_file": str(password)}
        agent = daemons.agent(
            docker={
                "url": proxy.url,
                "timeout_seconds": TIMEOUT_SECONDS,
                "registries": [login],
            },
            apps={"bind": "127.0.0.1", "stop_seconds": 1, "pull_seconds": PULL_SECONDS},
        )
        app = ObservedApp(agent, docker_client)
        images = [f"{server.server}/{name}" for name in IMAGES]
        yield PullingAgent(app, proxy, docker_client, images)
        if agent.is_running:
            app.delete()
        server.forget(docker_client)


def test_an_image_whose_pull_ends_as_the_agent_is_killed_is_removed_after_the_restart(
    pulling: PullingAgent,
) -> None:
    agent = pulling.app.agent
    watch = pulling.proxy.watch(Fault(PULL, "after"), agent.kill)
    pulling.create(pulling.image)
    assert watch.struck.wait(60)
    assert pulling.is_here(pulling.image)

    agent.start()

    pulling.until_gone(pulling.image)
    assert pulling.app.record() is None


def test_an_image_whose_pull_took_longer_than_its_limit_is_removed_in_the_end(
    pulling: PullingAgent,
) -> None:
    agent = pulling.app.agent
    watch = pulling.proxy.watch(Fault(PULL, "late"), agent.kill)
    pulling.create(pulling.image)
    assert watch.struck.is_set()
    assert pulling.app.record() is None
    assert pulling.is_here(pulling.image)

    agent.restart()

    pulling.until_gone(pulling.image)


def test_an_image_that_is_pulled_by_two_references_at_the_same_time_is_removed(
    pulling: PullingAgent, docker_client: docker.APIClient
) -> None:
    agent = pulling.app.agent
    pulling.pull_by_hand()
    docker_client.tag(pulling.image, same := f"{pulling.image}-too", tag="latest")
    login = {"username": USER, "password": PASSWORD}
    docker_client.push(same, "latest", auth_config=login)
    for image in (same, pulling.image):
        docker_client.remove_image(image)
    names = {
        f"{pulling.app.name}-{number}": image for number, image in enumerate((same, pulling.image))
    }

    def create(name: str) -> None:
        body = {"name": name, "image": names[name], "memory": 32}
        assert agent.ask("POST", "/v1/apps", json=body).status_code == 201

    with ThreadPoolExecutor() as clients:
        list(clients.map(create, names))
    for name in names:
        assert agent.ask("DELETE", f"/v1/apps/{name}").ok

    pulling.until_gone(pulling.image)
    pulling.until_gone(same)


def test_such_an_image_stays_if_somebody_else_has_pulled_it_meanwhile(
    pulling: PullingAgent,
) -> None:
    agent = pulling.app.agent
    watch = pulling.proxy.watch(Fault(PULL, "after"), agent.kill)
    pulling.create(pulling.image)
    assert watch.struck.wait(60)
    pulling.pull_by_hand()

    agent.start()
    pulling.create(pulling.other)
    assert agent.ask("DELETE", pulling.app.path).ok

    pulling.until_gone(pulling.other)
    assert pulling.is_here(pulling.image)


@pytest.mark.parametrize(
    "moment", some_of(["before", "after", "lost", "late"], "after", reason="every kill point")
)
def test_an_image_whose_removal_is_interrupted_is_removed_in_the_end(
    pulling: PullingAgent, moment: Moment
) -> None:
    agent = pulling.app.agent
    pulling.create(pulling.image)
    assert pulling.is_here(pulling.image)
    watch = pulling.proxy.watch(Fault(REMOVAL, moment), agent.kill)
    assert agent.ask("DELETE", pulling.app.path).ok
    assert watch.struck.wait(60)
    if not agent.is_running:
        agent.start()

    pulling.until_gone(pulling.image)
    pulling.create(pulling.image)
    assert pulling.app.record() is not None
