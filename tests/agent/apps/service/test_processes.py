"""The engine asks its host's ps for the processes of an app; that one may be missing or fail."""

from pathlib import Path

import docker
import pytest

from tests.support.agent.containers import derived_image
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "unshare", "ip")


@pytest.mark.engines
async def test_a_ps_that_fails_is_named_and_all_else_is_reported(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    ps = programs / "ps"
    ps.write_text("#!/bin/sh\necho 'ps: bad library' >&2\nexit 1\n")
    ps.chmod(0o755)
    with Dockerd() as engine:
        engine.start(programs=programs)
        engine.build()
        async with in_process_agent(tmp_path, engine.url) as agent:
            name = (await agent.create(IMAGE))["name"]

            answer = await agent.ask("GET", f"/{name}/processes")

            assert answer.status == 503
            assert "`ps` of its host" in answer.json["message"]
            assert "ps: bad library" in answer.json["message"]
            assert (await agent.get(name))["state"] == "running"
            ps.unlink()
            assert (await agent.ask("GET", f"/{name}/processes")).json[0]["pid"] > 0


async def test_a_user_has_the_name_that_the_image_gives_it_and_no_other(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    users = {"etc/passwd": b"www:x:1:1::/:/bin/sh\n"}  # which other hosts call daemon
    with (
        derived_image(docker_client, busybox_image, "USER 1", users) as image,
        derived_image(docker_client, busybox_image, "USER 2") as unnamed,
    ):
        for tag, user in ((image, "www"), (unnamed, "2")):
            name = (await agent.create(tag))["name"]
            processes = (await agent.ask("GET", f"/{name}/processes")).json
            assert {each["user"] for each in processes} == {user}
            await agent.ask("DELETE", f"/{name}")


async def test_long_arguments_are_cut_so_that_no_app_can_make_the_answer_huge(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    talker = "sh -c 'sleep 999; true' $(busybox printf %0100000d 1) & sleep 999"
    with derived_image(docker_client, busybox_image, f'CMD ["/bin/sh", "-c", "{talker}"]') as image:
        record = await agent.create(image)

        async def both() -> bool:
            return len(await commands(agent, record["name"])) >= 3

        await async_until(both)
        longest = max(map(len, await commands(agent, record["name"])))
        await agent.ask("DELETE", f"/{record['name']}")

    assert 1000 < longest <= 4096


async def commands(agent: InProcessAgent, name: str) -> list[str]:
    processes = (await agent.ask("GET", f"/{name}/processes")).json
    return [process["command"] for process in processes]
