"""A lost database is read back from what the agent wrote on its containers."""

from pathlib import Path
from typing import Any

import docker
import pytest

from tests.agent.rig import Rig, rigged
from tests.agent.test_keys import PASSWORD, listening, log_in, set_password

pytestmark = pytest.mark.real


def lose(folder: Path) -> None:
    for file in folder.glob("agent.db*"):
        file.unlink()


async def records(rig: Rig, *names: str) -> list[dict[str, Any]]:
    return [await rig.get(name) for name in names]


async def test_apps_come_back_with_all_that_was_asked_for(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with rigged(tmp_path, engine_url, keep=True) as rig:
        running = await rig.create(busybox_image, env={"TOKEN": "s3cret"}, cpu=70)
        name = running["name"]
        await rig.ask("POST", f"/{name}/labels", {"Value": "service:web"})
        await rig.ask("PUT", f"/{name}/rebuild")  # carries the label onto the container
        await rig.ask("PUT", f"/{name}", {"memory": 40})
        stopped = await rig.create(busybox_image)
        await rig.ask("PUT", f"/{stopped['name']}/stop")
        before = await records(rig, name, stopped["name"])
    labels = docker_client.inspect_container(before[0]["container_id"])["Config"]["Labels"]
    assert "s3cret" not in str(labels)  # the engine publishes these in its events

    lose(tmp_path)

    async with rigged(tmp_path, engine_url, adopt=True) as rig:
        rig.used += [each["name"] for each in before]
        assert await records(rig, name, stopped["name"]) == before
        rebuilt = (await rig.ask("PUT", f"/{name}/rebuild")).json
        assert (rebuilt["env"], rebuilt["memory"]) == ({"TOKEN": "s3cret"}, 40)


async def test_the_password_is_read_back_from_the_container(
    tmp_path: Path, engine_url: str, ssh_image: str
) -> None:
    async with rigged(tmp_path, engine_url, keep=True) as rig:
        record = await rig.create(ssh_image, memory=128)
        await set_password(rig, record)

    lose(tmp_path)

    async with rigged(tmp_path, engine_url, adopt=True) as rig:
        rig.used.append(record["name"])
        rebuilt = (await rig.ask("PUT", f"/{record['name']}/rebuild")).json
        assert rebuilt["container_id"] != record["container_id"]
        await listening(rebuilt)
        assert await log_in(rebuilt, PASSWORD) == "app"


async def test_a_restarted_agent_knows_all_it_knew(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    async with rigged(tmp_path, engine_url, keep=True) as rig:
        record = await rig.create(busybox_image)
        await rig.ask("POST", f"/{record['name']}/labels", {"Value": "service:web"})
        before = await rig.get(record["name"])

    async with rigged(tmp_path, engine_url) as rig:
        rig.used.append(record["name"])
        assert await rig.get(record["name"]) == before


async def test_a_running_copy_of_a_stopped_app_is_not_taken_for_it(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with rigged(tmp_path, engine_url, keep=True) as rig:
        record = await rig.create(busybox_image)
        name = record["name"]
        await rig.ask("PUT", f"/{name}/stop")
    image = docker_client.commit(record["container_id"])["Id"]  # with all its labels
    copy = docker_client.create_container(image, name=f"copy-of-{name}")["Id"]
    docker_client.start(copy)

    lose(tmp_path)

    try:
        async with rigged(tmp_path, engine_url, adopt=True) as rig:
            rig.used.append(name)
            found = await rig.get(name)
            assert (found["container_id"], found["desired"]) == (record["container_id"], "stopped")
        assert docker_client.inspect_container(copy)["State"]["Running"]  # also after the delete
    finally:
        docker_client.remove_container(copy, force=True)
        docker_client.remove_image(image)
