"""What an image says by its labels about the app that is made of it."""

import docker
import pytest

from tests.support.agent.containers import derived_image, run_in_container
from tests.support.agent.in_process import InProcessAgent
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

# A `chpasswd` that writes its input to /given instead of setting a password.
CHPASSWD = {"usr/sbin/chpasswd": b"#!/bin/sh\ncat >/given\n"}


@pytest.mark.engines
async def test_an_image_says_where_its_data_lies(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, "LABEL rollcall.data=/var/lib/app") as image:
        record = await agent.create(image)
        inspected = docker_client.inspect_container(record["container_id"])
        await agent.ask("DELETE", f"/{record['name']}")

    mounts = [(mount["Name"], mount["Destination"]) for mount in inspected["Mounts"]]
    assert mounts == [(f"rollcall-{record['name']}", "/var/lib/app")]


async def test_an_image_says_whose_password_is_set(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, "LABEL rollcall.user=root", CHPASSWD) as image:
        record = await agent.create(image)
        answer = await agent.ask("PUT", f"/{record['name']}/keys", "a good password")
        given = run_in_container(docker_client, record, "cat /given")
        await agent.ask("DELETE", f"/{record['name']}")

    assert answer.status == 200, answer.json
    assert given.startswith("root:$6$")


BURDENS = [
    {"Labels": {"x": "A" * 70_000}},
    {"Cmd": ["/bin/sh", "-c", f"sleep 100; : {'A' * 70_000}"]},
    {"Env": [f"X={'A' * 70_000}"]},
]


@pytest.mark.parametrize(
    "conf",
    some_of(BURDENS, BURDENS[0], reason="further parts of the configuration"),
    ids=",".join,
)
async def test_an_image_whose_configuration_burdens_each_answer_of_the_engine_is_rejected(
    agent: InProcessAgent,
    busybox_image: str,
    docker_client: docker.APIClient,
    conf: dict[str, object],
) -> None:
    container = docker_client.create_container(busybox_image)["Id"]
    tag = "rollcall-test-variant:burden"
    docker_client.commit(container, "rollcall-test-variant", "burden", conf=conf)
    docker_client.remove_container(container)
    record = await agent.create(busybox_image)
    other = agent.name()
    try:
        created = await agent.ask("POST", "", {"name": other, "image": tag})
        updated = await agent.ask("PUT", f"/{record['name']}", {"image": tag})
    finally:
        docker_client.remove_image(tag, force=True)

    assert (created.status, updated.status) == (409, 409)
    assert "configuration of the image" in created.json["message"]
    assert "65536" in created.json["message"]
    assert (await agent.ask("GET", f"/{other}")).status == 404
    after = await agent.get(record["name"])
    assert (after["state"], after["container_id"]) == ("running", record["container_id"])
