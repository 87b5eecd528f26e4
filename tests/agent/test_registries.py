"""Images from a private server: its login, its failures, and what pulling tells."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest

from agent.engine import RegistryLogin
from tests.agent.conftest import variant
from tests.agent.image_registry import (
    PASSWORD,
    USER,
    ImageRegistry,
    image_registry,
    stalling_registry,
)
from tests.agent.rig import Rig, rigged
from tests.conftest import FreePort

pytestmark = pytest.mark.real("docker-registry", "perl")


@pytest.fixture
def images(
    tmp_path: Path, free_port: FreePort, docker_client: docker.APIClient
) -> Iterator[ImageRegistry]:
    with image_registry(tmp_path / "images", free_port()) as registry:
        yield registry
        registry.forget(docker_client)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "images.password"
    file.write_text(PASSWORD + "\n")
    return file


@pytest.fixture
async def puller(
    tmp_path: Path, engine_url: str, images: ImageRegistry, password_file: Path
) -> AsyncIterator[Rig]:
    """Give an agent's apps that may pull from the server below ``team``, and nowhere else there."""
    wrong = tmp_path / "wrong.password"
    wrong.write_text("not this one")
    logins = (
        RegistryLogin(server=images.server, user=USER, password_file=wrong),
        RegistryLogin(server=f"{images.server}/team", user=USER, password_file=password_file),
    )
    async with rigged(tmp_path / "agent", engine_url, logins=logins) as rig:
        yield rig


async def test_an_image_is_pulled_with_the_login_of_the_longest_match(
    puller: Rig, images: ImageRegistry, docker_client: docker.APIClient, busybox_image: str
) -> None:
    ours = images.push(docker_client, busybox_image, "team/app")
    theirs = images.push(docker_client, busybox_image, "other/app")
    try:
        record = await puller.create(ours)
        refused = await puller.ask("POST", "", {"name": puller.name(), "image": theirs})

        assert record["state"] == "running"
        assert refused.status == 404
        assert "unauthorized" in refused.json["message"] or "denied" in refused.json["message"]
        said = str(puller.log.entries) + str(refused.json) + str(record)
        assert PASSWORD not in said
        inspected = str(docker_client.inspect_container(record["container_id"]))
        assert PASSWORD not in inspected
    finally:
        docker_client.remove_image(f"{ours}:latest", force=True)


async def test_a_password_that_cannot_be_read_is_named_by_its_file(
    puller: Rig, images: ImageRegistry, password_file: Path
) -> None:
    await asyncio.to_thread(password_file.unlink)
    body = {"name": puller.name(), "image": f"{images.server}/team/app"}

    answer = await puller.ask("POST", "", body)

    assert answer.status == 404
    assert str(password_file) in answer.json["message"]


async def test_a_rebuild_pulls_what_is_new_and_an_image_without_it_stays_as_it_is(
    puller: Rig, images: ImageRegistry, docker_client: docker.APIClient, busybox_image: str
) -> None:
    image = images.push(docker_client, busybox_image, "team/app")
    try:
        record = await puller.create(image)
        with variant(docker_client, busybox_image, "ENV RELEASE=2") as newer:
            images.push(docker_client, newer, "team/app")
            rebuilt = await puller.ask("PUT", f"/{record['name']}/rebuild")

        assert rebuilt.status == 200
        assert rebuilt.json["image_id"] != record["image_id"]
        container = docker_client.inspect_container(rebuilt.json["container_id"])
        assert "RELEASE=2" in container["Config"]["Env"]
    finally:
        docker_client.remove_image(f"{image}:latest", force=True)


async def test_a_rebuild_that_cannot_pull_is_404_and_the_app_stays_as_it_was(
    tmp_path: Path,
    engine_url: str,
    free_port: FreePort,
    docker_client: docker.APIClient,
    busybox_image: str,
    password_file: Path,
) -> None:
    port = free_port()
    login = RegistryLogin(server=f"127.0.0.1:{port}", user=USER, password_file=password_file)
    async with rigged(tmp_path / "agent", engine_url, logins=(login,)) as rig:
        with image_registry(tmp_path / "images", port) as images:
            image = images.push(docker_client, busybox_image, "team/app")
            record = await rig.create(image)
        try:
            rebuilt = await rig.ask("PUT", f"/{record['name']}/rebuild")
            updated = await rig.ask("PUT", f"/{record['name']}", {"env": {"A": "1"}})

            assert rebuilt.status == 404
            assert "refused" in rebuilt.json["message"]
            # An update needs no newer image, so the one that is here does.
            assert updated.status == 200
            assert updated.json["env"] == {"A": "1"}
        finally:
            await rig.ask("DELETE", f"/{record['name']}")
            images.forget(docker_client)


async def test_a_pull_without_progress_is_given_up(tmp_path: Path, engine_url: str) -> None:
    async with (
        stalling_registry() as server,
        rigged(tmp_path, engine_url, pull_idle_seconds=0.5) as rig,
    ):
        name = rig.name()
        body = {"name": name, "image": f"{server}/app"}
        begun = await rig.ask("POST", "", body, headers={"Prefer": "respond-async"})
        pulling = await rig.until(name, state="pulling")
        failed = await rig.until(name, state="failed")

    assert begun.status == 202
    assert pulling["progress"]["step"] == "pulling"
    assert "no progress" in failed["message"]


async def test_apps_of_one_image_share_its_pull(
    puller: Rig, images: ImageRegistry, docker_client: docker.APIClient, busybox_image: str
) -> None:
    image = images.push(docker_client, busybox_image, "team/app")
    try:
        records = await asyncio.gather(*(puller.create(image) for _ in range(4)))

        assert {record["state"] for record in records} == {"running"}
        assert len({record["image_id"] for record in records}) == 1
    finally:
        for record in records:
            await puller.ask("DELETE", f"/{record['name']}")
        docker_client.remove_image(f"{image}:latest", force=True)
