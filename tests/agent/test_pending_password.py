"""A password that cannot be set never keeps an app from running."""

import docker
import pytest

from tests.agent.conftest import variant
from tests.agent.rig import Rig

pytestmark = pytest.mark.real

PASSWORD = "correct horse battery"
USER = "RUN busybox echo app:x:1000:1000::/:/bin/sh >> /etc/passwd"
DECEIVES = f'{USER}\nRUN busybox printf "#!/bin/sh\\nexit 1\\n" > /bin/chpasswd'
EXECUTABLE = "RUN busybox chmod +x /bin/chpasswd"


async def test_a_stopped_app_without_chpasswd_refuses_the_password_and_starts(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with variant(docker_client, busybox_image, USER) as image:
        record = await rig.create(image)
        path = f"/{record['name']}"
        await rig.ask("PUT", path + "/stop")

        refused = await rig.ask("PUT", path + "/keys", PASSWORD)
        started = await rig.ask("PUT", path + "/start")

        await rig.ask("DELETE", path)
    assert refused.status == 409
    assert "chpasswd" in refused.json["message"]
    assert (started.status, started.json["password"]) == (200, None)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_start_drops_a_password_that_cannot_be_set_and_says_so(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient, *, by_hand: bool
) -> None:
    with variant(docker_client, busybox_image, f"{DECEIVES}\n{EXECUTABLE}") as image:
        record = await rig.create(image)
        path = f"/{record['name']}"
        await rig.ask("PUT", path + "/stop")
        taken = await rig.ask("PUT", path + "/keys", PASSWORD)
        assert (taken.status, taken.json["password"]) == (200, "pending")

        if by_hand:
            docker_client.start(record["container_id"])
        else:
            assert (await rig.ask("PUT", path + "/start")).status == 200
        after = await rig.until(record["name"], password=None, state="running")

        assert "password was dropped" in after["message"]
        await rig.ask("DELETE", path)
