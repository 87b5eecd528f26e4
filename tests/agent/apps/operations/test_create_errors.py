"""What is rejected is rejected at once, in clear words, and is not logged twice."""

import secrets
from typing import Any

import docker
import pytest

from tests.support.agent.containers import derived_image
from tests.support.agent.in_process import InProcessAgent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


async def test_an_image_that_exposes_a_range_of_ports_can_be_run(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    container = docker_client.create_container(busybox_image)["Id"]
    tag = f"rollcall-test-range:{secrets.token_hex(4)}"
    repository, _, version = tag.partition(":")
    config: dict[str, Any] = {"ExposedPorts": {"8000-8005/tcp": {}, "8000/tcp": {}, "53/udp": {}}}
    docker_client.commit(container, repository=repository, tag=version, conf=config)
    docker_client.remove_container(container)
    try:
        record = await agent.create(tag)
        assert record["state"] == "running"
        assert (await agent.ask("DELETE", f"/{record['name']}")).status == 200
    finally:
        docker_client.remove_image(tag)


async def test_an_image_without_a_command_is_a_bad_request_that_names_the_field(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, "CMD []\nENTRYPOINT []") as image:
        answer = await agent.ask("POST", "", {"name": agent.name(), "image": image})

    assert answer.status == 400
    assert "names no program to run; set `command`" in answer.json["message"]
    assert (await agent.ask("GET", f"/{agent.used[-1]}")).status == 404


async def test_a_name_of_one_letter_is_rejected_with_what_would_be_right(
    agent: InProcessAgent, busybox_image: str
) -> None:
    answer = await agent.ask("POST", "", {"name": "a", "image": busybox_image})

    assert answer.status == 400
    assert "2 to 63" in answer.json["message"]


async def test_an_unknown_image_id_is_rejected_without_asking_a_server_of_images(
    agent: InProcessAgent,
) -> None:
    body = {"name": agent.name(), "image": f"sha256:{secrets.token_hex(32)}"}

    answer = await agent.ask("POST", "", body)

    assert answer.status == 404
    assert "not on this host" in answer.json["message"]


async def test_a_name_in_use_is_rejected_before_a_turn_and_without_a_warning(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)

    answer = await agent.ask("POST", "", {"name": record["name"], "image": busybox_image})
    wrong = await agent.ask("PUT", f"/{record['name']}", {"cpu": 10**6})

    assert (answer.status, wrong.status) == (409, 400)
    assert record["name"] in answer.json["message"]
    reported = [each for each in agent.log.entries if each["event"] == "operation failed"]
    assert [(each["operation"], each["log_level"]) for each in reported] == [("update", "debug")]


async def test_a_container_whose_name_was_held_gets_it_once_it_is_free(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    docker_client.rename(record["container_id"], f"{name}-old")
    foreign = docker_client.create_container(busybox_image, name=name)["Id"]
    try:
        rebuilt = (await agent.ask("PUT", f"/{name}/rebuild")).json
        held = docker_client.inspect_container(rebuilt["container_id"])["Name"]
    finally:
        docker_client.remove_container(foreign)
    assert held.startswith(f"/{name}.NEXT-")
    assert f"another one has the name `{name}`; rename or remove that one" in rebuilt["message"]

    docker_client.restart(rebuilt["container_id"], timeout=1)  # an event makes the agent look

    async def called() -> bool:
        seen = docker_client.inspect_container(rebuilt["container_id"])
        return bool(seen["Name"] == f"/{name}")

    await async_until(called)
