"""A password that cannot be set never keeps an app from running."""

import docker
import pytest

from tests.support.agent.containers import WITH_USER, derived_image
from tests.support.agent.in_process import InProcessAgent
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

PASSWORD = "correct horse battery"
DECEIVES = {**WITH_USER, "bin/chpasswd": b"#!/bin/sh\nexit 127\n"}


async def test_a_stopped_app_without_chpasswd_rejects_the_password_and_starts(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, files=WITH_USER) as image:
        record = await agent.create(image)
        path = f"/{record['name']}"
        await agent.ask("PUT", path + "/stop")

        rejected = await agent.ask("PUT", path + "/keys", PASSWORD)
        started = await agent.ask("PUT", path + "/start")

        await agent.ask("DELETE", path)
    assert rejected.status == 409
    assert "chpasswd" in rejected.json["message"]
    assert (started.status, started.json["password"]) == (200, None)


@pytest.mark.parametrize(
    "by_hand", some_of([False, True], False, reason="the same at a start by hand")
)
async def test_a_start_drops_a_password_that_cannot_be_set_and_says_so(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient, *, by_hand: bool
) -> None:
    with derived_image(docker_client, busybox_image, files=DECEIVES) as image:
        record = await agent.create(image)
        path = f"/{record['name']}"
        await agent.ask("PUT", path + "/stop")
        taken = await agent.ask("PUT", path + "/keys", PASSWORD)
        assert (taken.status, taken.json["password"]) == (200, "pending")

        if by_hand:
            docker_client.start(record["container_id"])
        else:
            assert (await agent.ask("PUT", path + "/start")).status == 200
        after = await agent.until(record["name"], password=None, state="running")

        assert "password was dropped" in after["message"]
        await agent.ask("DELETE", path)
