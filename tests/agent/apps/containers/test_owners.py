"""New volumes belong to the user of the image, so that its program can write to them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.model import NewApp
from tests.support.agent.apps.volumes import apps_of
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.fake_engine import FakeEngine, fake_image
from tests.support.agent.in_process import InProcessAgent
from tests.support.agent.running_apps import ASKER
from tests.support.run.release import some_of

USERS = {"etc/passwd": b"app:x:1234:55::/:/bin/sh\n", "etc/group": b"staff:x:77:\n"}
PATHS = """\
RUN busybox mkdir /own /bare && busybox chown 9:8 /own && busybox chmod 750 /own && \\
    echo x >/bare/file
"""


def run(client: docker.APIClient, record: dict[str, Any], script: str) -> str:
    """Run a script as the user of the app; return its output."""
    running = client.exec_create(record["container_id"], ["/bin/sh", "-c", script])["Id"]
    said: bytes = client.exec_start(running)
    assert client.exec_inspect(running)["ExitCode"] == 0, said
    return said.decode()


def owners(client: docker.APIClient, record: dict[str, Any], *paths: str) -> list[str]:
    return run(client, record, f"busybox stat -c %u:%g:%a {' '.join(paths)}").split()


@pytest.mark.real
@pytest.mark.engines
@pytest.mark.parametrize(
    ("user", "owner"),
    some_of(
        [("app", "1234:55"), ("app:staff", "1234:77"), ("1234", "1234:55"), ("4321", "4321:0")],
        ("app:staff", "1234:77"),
        reason="an image for each user",
    ),
)
async def test_a_new_volume_belongs_to_the_user_of_the_image(
    agent: InProcessAgent,
    busybox_image: str,
    docker_client: docker.APIClient,
    user: str,
    owner: str,
) -> None:
    paths = ("/srv", "/srv/deeper", "/bare", "/own")
    with derived_image(docker_client, busybox_image, f"{PATHS}USER {user}", USERS) as image:
        record = await agent.create(image, data=list(paths))
        found = owners(docker_client, record, *paths)
        assert found == [f"{owner}:755", f"{owner}:755", f"{owner}:755", "9:8:750"]
        run(docker_client, record, "echo mine >/srv/file && busybox cat /bare/file")
        run(docker_client, record, "busybox chmod 700 /srv")

        await agent.ask("PUT", f"/{record['name']}", {"data": [*paths, "/late"]})

        after = await agent.get(record["name"])
        found = owners(docker_client, after, "/srv", "/late")
        assert found == [f"{owner}:700", f"{owner}:755"]
        assert after["message"] is None
        assert (await agent.ask("DELETE", f"/{record['name']}")).status == 200


@pytest.mark.real
async def test_a_volume_behind_a_link_of_the_image_belongs_to_its_user_too(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    links = "RUN busybox mkdir /data && busybox ln -s ../data /one && busybox ln -s one /two"
    with derived_image(docker_client, busybox_image, f"{links}\nUSER 1234") as image:
        record = await agent.create(image, data=["/two"])
        assert owners(docker_client, record, "/data") == ["1234:0:755"]
        run(docker_client, record, "busybox test -L /two && echo mine >/two/file")
        assert (await agent.ask("DELETE", f"/{record['name']}")).status == 200


@pytest.mark.real
async def test_without_a_user_it_belongs_to_root(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    assert owners(docker_client, record, "/srv") == ["0:0:755"]


@pytest.mark.slow
async def test_where_the_user_is_not_known_the_record_has_a_note(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.tag("app:x", replace(fake_image("i"), user="somebody"))
    engine.tag("app:y", replace(fake_image("j"), user="app"))
    async with apps_of(tmp_path, engine) as apps:
        for name, image in (("web", "app:x"), ("shop", "app:y")):
            await apps.create(NewApp(name=name, image=image), ASKER)
        noted, clear = await apps.queries.one("web"), await apps.queries.one("shop")

    assert noted.message == (
        "note: the image's user 'somebody' is not in its /etc/passwd and /etc/group, so new volumes"
        " belong to root"
    )
    assert (clear.message, len(engine.state.containers)) == (None, 2)
