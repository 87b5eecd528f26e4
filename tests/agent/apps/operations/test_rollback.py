"""Images of a real server on a real engine: rollbacks, and images that go before they are used."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import docker
import pytest
from structlog.testing import LogCapture

from agent.engine.engine import Engine
from agent.engine.logins import ImageRegistryLogin
from agent.engine.models import ContainerSpec, PullProgress
from agent.model import NewApp
from tests.support.agent.containers import derived_image, has_image, read_file, write_file
from tests.support.agent.image_registry import PASSWORD, USER, ImageRegistry, image_registry
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.daemons import FreePort
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("docker-registry", "perl")


@pytest.fixture(scope="module")
def image_server(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[ImageRegistry]:
    with image_registry(tmp_path_factory.mktemp("server") / "images", free_port()) as registry:
        yield registry


@pytest.fixture
def login(tmp_path: Path, image_server: ImageRegistry) -> ImageRegistryLogin:
    file = tmp_path / "images.password"
    file.write_text(PASSWORD)
    return ImageRegistryLogin(server=image_server.server, user=USER, password_file=file)


@pytest.fixture(scope="module")
def pushed(
    image_server: ImageRegistry, docker_client: docker.APIClient, busybox_image: str
) -> list[str]:
    """Return the references of two images of the server."""

    def push(version: str) -> str:
        files = {"www/index.html": f"version {version}".encode()}
        with derived_image(docker_client, busybox_image, files=files) as image:
            return image_server.push(docker_client, image, f"team/app-{version}")

    return [push(version) for version in ("1", "2")]


@pytest.fixture
def served(
    image_server: ImageRegistry, docker_client: docker.APIClient, pushed: list[str]
) -> Iterator[list[str]]:
    """Yield the references of two images of the server that are not on this host."""
    yield pushed
    image_server.forget(docker_client)


async def until_gone(client: docker.APIClient, image: str) -> None:
    async def gone() -> bool:
        return not await asyncio.to_thread(has_image, client, image)

    await async_until(gone)


async def update(agent: InProcessAgent, name: str, image: str) -> str:
    """Give an app another image; return the image's id."""
    answer = await agent.ask("PUT", f"/{name}", {"image": image})
    assert answer.status == 200, answer.json
    return str(answer.json["image_id"])


@pytest.mark.engines
async def test_an_app_goes_back_with_its_data_and_its_images_go_with_it(
    tmp_path: Path,
    engine_url: str,
    docker_client: docker.APIClient,
    login: ImageRegistryLogin,
    served: list[str],
    busybox_image: str,
) -> None:
    async with in_process_agent(tmp_path / "agent", engine_url, logins=(login,)) as agent:
        record = await agent.create(served[0], env={"TOKEN": "s3cret"})
        name, first = record["name"], record["image_id"]
        await asyncio.to_thread(write_file, docker_client, record, "kept")
        second = await update(agent, name, served[1])
        assert "version 2" in await agent.page(await agent.get(name))

        back = await agent.ask("PUT", f"/{name}/rollback")
        assert back.status == 200, back.json
        assert "version 1" in await agent.page(back.json)
        assert await asyncio.to_thread(read_file, docker_client, back.json) == "kept"
        assert (back.json["revision"], back.json["image_id"]) == (3, first)
        history = (await agent.ask("GET", f"/{name}/history")).json
        assert [each["image_id"] for each in history] == [first, second, first]
        assert [each["digest"].partition("@")[0] for each in history] == [
            served[0],
            served[1],
            served[0],
        ]

        assert has_image(docker_client, first)
        assert has_image(docker_client, second)
        assert (await agent.ask("DELETE", f"/{name}")).status == 200
        await until_gone(docker_client, first)
        await until_gone(docker_client, second)
        assert docker_client.images(name=busybox_image)


async def test_an_image_that_made_room_on_a_full_disk_is_pulled_by_its_digest(
    tmp_path: Path,
    engine_url: str,
    docker_client: docker.APIClient,
    login: ImageRegistryLogin,
    served: list[str],
) -> None:
    folder = tmp_path / "agent"
    async with in_process_agent(folder, engine_url, logins=(login,), keep=True) as agent:
        record = await agent.create(served[0])
        name, first = record["name"], record["image_id"]
        second = await update(agent, name, served[1])
    # No disk is as empty as that.
    full = in_process_agent(folder, engine_url, keep=True, min_free_percent=100)
    async with full as agent:
        await until_gone(docker_client, first)
        assert has_image(docker_client, second)
        assert (await agent.get(name))["state"] == "running"
    async with in_process_agent(folder, engine_url, logins=(login,)) as agent:
        agent.used.append(name)
        back = await agent.ask("PUT", f"/{name}/rollback", {"revision": 1})

        assert back.status == 200, back.json
        assert (back.json["image"], back.json["image_id"]) == (served[0], first)
        assert "version 1" in await agent.page(back.json)


async def test_a_local_image_that_is_gone_is_rejected_and_the_app_runs_on(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    with derived_image(docker_client, busybox_image, "ENV VERSION=1") as local:
        record = await agent.create(local)
        (listed,) = docker_client.images(name=local)
        await update(agent, record["name"], busybox_image)
    before = await agent.get(record["name"])
    assert not has_image(docker_client, record["image_id"])

    answer = await agent.ask("PUT", f"/{record['name']}/rollback")

    # The image store of containerd gives it a digest. A server is asked for that, if there is one.
    has_digest = any("<none>" not in each for each in listed["RepoDigests"] or ())
    assert answer.status in ((404, 502) if has_digest else (404,))
    assert "docker load" in answer.json["message"]
    after = await agent.get(record["name"])
    assert (after["state"], after["revision"]) == ("running", 2)
    assert after["container_id"] == before["container_id"]
    assert record["image_id"] in after["message"]


async def test_a_rollback_that_does_not_stay_up_goes_back_by_itself(
    agent: InProcessAgent,
    docker_client: docker.APIClient,
    busybox_image: str,
    failing_image: str,
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    await asyncio.to_thread(write_file, docker_client, record, "kept")
    await agent.ask("PUT", f"/{name}/stop")
    await update(agent, name, failing_image)
    await update(agent, name, busybox_image)
    await agent.ask("PUT", f"/{name}/start")
    before = await agent.get(name)

    answer = await agent.ask("PUT", f"/{name}/rollback", {"revision": 2})

    assert answer.status == 409
    assert "no configuration here" in answer.json["message"]
    after = await agent.get(name)
    assert (after["state"], after["container_id"]) == ("running", before["container_id"])
    assert (after["revision"], after["image"]) == (3, busybox_image)
    assert await asyncio.to_thread(read_file, docker_client, after) == "kept"


class RacingEngine(Engine):
    """An engine from which somebody removes an image before the first container is made of it."""

    def __init__(self, url: str, login: ImageRegistryLogin, remove: Callable[[str], None]) -> None:
        super().__init__(url=url, timeout_seconds=30, logins=(login,))
        self.pulls = list[str]()
        self._remove = remove
        self._removed = False

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        self.pulls.append(reference)
        await super().pull(reference, progress)

    async def create(self, spec: ContainerSpec) -> str:
        if not self._removed:
            self._removed = True
            await asyncio.to_thread(self._remove, spec.image)
        return await super().create(spec)


async def test_an_image_that_somebody_removes_before_its_container_is_made_is_pulled_again(
    tmp_path: Path,
    engine_url: str,
    docker_client: docker.APIClient,
    login: ImageRegistryLogin,
    served: list[str],
) -> None:
    engine = RacingEngine(engine_url, login, partial(docker_client.remove_image, force=True))
    log, name = LogCapture(), f"test-{secrets.token_hex(4)}"
    async with running_apps(tmp_path / "agent", engine, log) as apps:
        created = await apps.create(NewApp(name=name, image=served[0], memory=32), ASKER)
        await apps.delete(name, ASKER)

    assert created.state == "running"
    assert engine.pulls == [served[0], served[0]]
    assert "image gone, fetched again" in [each["event"] for each in log.entries]


@pytest.mark.engines
async def test_the_engine_shows_what_happened_to_an_image(
    engine_url: str, docker_client: docker.APIClient, login: ImageRegistryLogin, served: list[str]
) -> None:
    began = time.time()
    engine = Engine(url=engine_url, timeout_seconds=30, logins=(login,))
    try:
        await engine.pull(served[0], lambda _: None)
        await engine.pull(served[1], lambda _: None)
        pulled = await engine.image_events(served[0], since=began)
        await asyncio.to_thread(docker_client.tag, served[0], "rollcall-test-theirs", "kept")
        tagged = await engine.image_events(served[0], since=began)
        await asyncio.to_thread(docker_client.remove_image, "rollcall-test-theirs:kept")
        later = await engine.image_events(served[0], since=time.time())
    finally:
        await engine.close()

    assert [event.action for event in pulled] == ["pull"]
    assert began <= pulled[0].time <= time.time()
    assert [event.action for event in tagged] == ["pull", "tag"]
    assert later == []
