"""What an image says by its labels about the app that is made of it."""

import docker
import pytest

from tests.agent.conftest import variant
from tests.agent.looking import run
from tests.agent.rig import Rig

pytestmark = pytest.mark.real

# It keeps what it was given, instead of the system's that sets passwords.
CHPASSWD = """\
RUN mkdir -p /usr/sbin && printf "%s\\n" "#!/bin/sh" "cat >/given" >/usr/sbin/chpasswd && \\
    busybox chmod 755 /usr/sbin/chpasswd
LABEL rollcall.user=root
"""


async def test_an_image_says_where_its_data_lies(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with variant(docker_client, busybox_image, "LABEL rollcall.data=/var/lib/app") as image:
        record = await rig.create(image)
        inspected = docker_client.inspect_container(record["container_id"])
        await rig.ask("DELETE", f"/{record['name']}")

    mounts = [(mount["Name"], mount["Destination"]) for mount in inspected["Mounts"]]
    assert mounts == [(f"rollcall-{record['name']}", "/var/lib/app")]


async def test_an_image_says_whose_password_is_set(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with variant(docker_client, busybox_image, CHPASSWD) as image:
        record = await rig.create(image)
        answer = await rig.ask("PUT", f"/{record['name']}/keys", "a good password")
        given = run(docker_client, record, "cat /given")
        await rig.ask("DELETE", f"/{record['name']}")

    assert answer.status == 200, answer.json
    assert given.startswith("root:$6$")


async def test_volumes_without_a_name_go_with_each_container(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with variant(docker_client, busybox_image, "VOLUME /cache") as image:
        record = await rig.create(image)
        name, own = record["name"], f"rollcall-{record['name']}"
        inspected = docker_client.inspect_container(record["container_id"])
        (unnamed,) = {mount["Name"] for mount in inspected["Mounts"]} - {own}

        await rig.ask("PUT", f"/{name}/rebuild")
        left = {each["Name"] for each in docker_client.volumes()["Volumes"]}
        await rig.ask("DELETE", f"/{name}")

    assert own in left
    assert unnamed not in left
