"""Images from a private server: its login, its failures, and what pulling shows."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest

from agent.engine.logins import ImageRegistryLogin
from agent.engine.reads import LONGEST_IMAGE
from tests.support.agent.containers import derived_image
from tests.support.agent.image_registry import (
    PASSWORD,
    USER,
    ImageRegistry,
    image_registry,
    stalling_image_registry,
)
from tests.support.agent.in_process import AgentResponse, InProcessAgent, in_process_agent
from tests.support.daemons import FreePort

pytestmark = pytest.mark.real("docker-registry", "perl")


@pytest.fixture(scope="module")
def images_of_file(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[ImageRegistry]:
    """Yield a server of images."""
    with image_registry(tmp_path_factory.mktemp("server") / "images", free_port()) as registry:
        yield registry


@pytest.fixture
def image_server(
    images_of_file: ImageRegistry, docker_client: docker.APIClient
) -> Iterator[ImageRegistry]:
    """Yield a server of images, of which none is on this host afterwards."""
    yield images_of_file
    images_of_file.forget(docker_client)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "images.password"
    file.write_text(PASSWORD + "\n")
    return file


@pytest.fixture
async def agent(
    tmp_path: Path, engine_url: str, image_server: ImageRegistry, password_file: Path
) -> AsyncIterator[InProcessAgent]:
    """Yield an agent that may pull from the server below ``team``, and nowhere else there."""
    wrong = tmp_path / "wrong.password"
    wrong.write_text("not this one")
    logins = (
        ImageRegistryLogin(server=image_server.server, user=USER, password_file=wrong),
        ImageRegistryLogin(
            server=f"{image_server.server}/team", user=USER, password_file=password_file
        ),
    )
    async with in_process_agent(tmp_path / "agent", engine_url, logins=logins) as agent:
        yield agent


@pytest.mark.engines
async def test_a_dry_run_asks_the_server_for_the_image_and_pulls_nothing(
    agent: InProcessAgent,
    image_server: ImageRegistry,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    ours = image_server.push(docker_client, busybox_image, "team/app")
    theirs = image_server.push(docker_client, busybox_image, "other/app")
    before = tags(docker_client)

    async def asked(image: str, *, dry_run: str) -> AgentResponse:
        body = {"name": agent.name(), "image": image}
        return await agent.ask("POST", f"?dry_run={dry_run}", body)

    planned = await asked(ours, dry_run="true")
    assert (planned.status, planned.json["app"]["image_id"]) == (200, None)
    assert planned.json["message"] == f"the image `{ours}` is pulled"
    for rejected in (theirs, f"{ours}:no-such-tag"):
        answers = [await asked(rejected, dry_run=dry_run) for dry_run in ("true", "false")]
        assert [each.status for each in answers] == [404, 404]
        assert all(
            f"the image `{rejected}` cannot be had" in each.json["message"] for each in answers
        )
    assert tags(docker_client) == before


def tags(client: docker.APIClient) -> set[str]:
    return {tag for image in client.images() for tag in image["RepoTags"] or ()}


@pytest.mark.engines
async def test_an_image_is_pulled_with_the_login_of_the_longest_match(
    agent: InProcessAgent,
    image_server: ImageRegistry,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    ours = image_server.push(docker_client, busybox_image, "team/app")
    theirs = image_server.push(docker_client, busybox_image, "other/app")
    try:
        record = await agent.create(ours)
        rejected = await agent.ask("POST", "", {"name": agent.name(), "image": theirs})

        assert record["state"] == "running"
        assert rejected.status == 404
        message = rejected.json["message"].lower()
        assert "unauthorized" in message or "denied" in message
        said = str(agent.log.entries) + str(rejected.json) + str(record)
        assert PASSWORD not in said
        inspected = str(docker_client.inspect_container(record["container_id"]))
        assert PASSWORD not in inspected
    finally:
        docker_client.remove_image(f"{ours}:latest", force=True)


async def test_a_password_that_cannot_be_read_is_named_by_its_file(
    agent: InProcessAgent, image_server: ImageRegistry, password_file: Path
) -> None:
    await asyncio.to_thread(password_file.unlink)
    body = {"name": agent.name(), "image": f"{image_server.server}/team/app"}

    answer = await agent.ask("POST", "", body)

    assert answer.status == 404
    assert str(password_file) in answer.json["message"]


@pytest.mark.engines
async def test_a_rebuild_pulls_what_is_new_and_an_image_without_it_stays_as_it_is(
    agent: InProcessAgent,
    image_server: ImageRegistry,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    image = image_server.push(docker_client, busybox_image, "team/app")
    try:
        record = await agent.create(image)
        with derived_image(docker_client, busybox_image, "ENV RELEASE=2") as newer:
            image_server.push(docker_client, newer, "team/app")
            rebuilt = await agent.ask("PUT", f"/{record['name']}/rebuild")

        assert rebuilt.status == 200
        assert rebuilt.json["image_id"] != record["image_id"]
        container = docker_client.inspect_container(rebuilt.json["container_id"])
        assert "RELEASE=2" in container["Config"]["Env"]
    finally:
        docker_client.remove_image(f"{image}:latest", force=True)


@pytest.mark.engines
async def test_an_image_that_is_too_large_to_be_read_is_gone_after_its_pull(
    agent: InProcessAgent,
    image_server: ImageRegistry,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    made = docker_client.create_container(busybox_image, labels={"a": "a" * LONGEST_IMAGE})
    docker_client.commit(made["Id"], repository="rollcall-test-large", tag="latest")
    docker_client.remove_container(made["Id"])
    try:
        image = image_server.push(docker_client, "rollcall-test-large", "team/large")
    finally:
        docker_client.remove_image("rollcall-test-large", force=True)

    rejected = await agent.ask("POST", "", {"name": agent.name(), "image": image})

    assert rejected.status == 409
    assert f"the configuration of the image `{image}`" in rejected.json["message"]
    assert f"{image}:latest" not in tags(docker_client)


@pytest.mark.engines
async def test_a_rebuild_whose_server_is_down_is_502_and_the_app_stays_as_it_was(
    tmp_path: Path,
    engine_url: str,
    free_port: FreePort,
    docker_client: docker.APIClient,
    busybox_image: str,
    password_file: Path,
) -> None:
    port = free_port()
    login = ImageRegistryLogin(server=f"127.0.0.1:{port}", user=USER, password_file=password_file)
    async with in_process_agent(tmp_path / "agent", engine_url, logins=(login,)) as agent:
        with image_registry(tmp_path / "images", port) as image_server:
            image = image_server.push(docker_client, busybox_image, "team/app")
            record = await agent.create(image)
        try:
            rebuilt = await agent.ask("PUT", f"/{record['name']}/rebuild")
            updated = await agent.ask("PUT", f"/{record['name']}", {"env": {"A": "1"}})

            assert rebuilt.status == 502
            assert "connection refused" in rebuilt.json["message"]
            assert "`pull: never`" in rebuilt.json["message"]
            # An update needs no newer image, so the one that is here does.
            assert updated.status == 200
            assert updated.json["env"] == {"A": "1"}
        finally:
            await agent.ask("DELETE", f"/{record['name']}")
            image_server.forget(docker_client)


async def test_a_pull_without_progress_is_given_up(tmp_path: Path, engine_url: str) -> None:
    async with (
        stalling_image_registry() as server,
        in_process_agent(tmp_path, engine_url, pull_idle_seconds=0.5) as agent,
    ):
        name = agent.name()
        body = {"name": name, "image": f"{server}/app"}
        begun = await agent.ask("POST", "", body, headers={"Prefer": "respond-async"})
        pulling = await agent.until(name, state="pulling")
        failed = await agent.until(name, state="failed")

    assert begun.status == 202
    assert pulling["progress"]["step"] == "pulling"
    assert "no progress" in failed["message"]


async def test_apps_of_one_image_share_its_pull(
    agent: InProcessAgent,
    image_server: ImageRegistry,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    image = image_server.push(docker_client, busybox_image, "team/app")
    try:
        records = await asyncio.gather(*(agent.create(image) for _ in range(3)))

        assert {record["state"] for record in records} == {"running"}
        assert len({record["image_id"] for record in records}) == 1
    finally:
        for record in records:
            await agent.ask("DELETE", f"/{record['name']}")
        docker_client.remove_image(f"{image}:latest", force=True)
