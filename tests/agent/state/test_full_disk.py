"""The disk of the agent's database is full: apps go on, and nothing is lost."""

from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.containers import containers_of
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("mount")


async def label_until_refused(agent: InProcessAgent, name: str) -> tuple[list[str], dict[str, Any]]:
    """Add long labels; return those that were taken, and the refusal."""
    taken: list[str] = []
    for number in range(600):
        label = f"n{number}:".ljust(1000, "x")
        answer = await agent.ask("POST", f"/{name}/labels", {"Value": label})
        if answer.status != 200:
            return taken, {"status": answer.status, **answer.json}
        taken.append(label)
    raise AssertionError("the disk never was too full for a label")


async def test_with_no_room_for_the_database_apps_stop_start_and_go_and_nothing_new_is_begun(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        async with in_process_agent(folder, engine_url) as agent:
            name, other = [(await agent.create(busybox_image))["name"] for _ in range(2)]
            before = await agent.get(name)
            filler = fill_disk(folder)

            new = agent.name()
            created = await agent.ask("POST", "", {"name": new, "image": busybox_image})
            rebuilt = await agent.ask("PUT", f"/{name}/rebuild")
            updated = await agent.ask("PUT", f"/{name}", {"env": {"A": "1"}})
            assert [each.status for each in (created, rebuilt, updated)] == [507] * 3
            assert created.headers["Retry-After"] == "60"
            assert str(folder) in created.json["message"]
            assert await agent.get(name) == before
            assert containers_of(docker_client, new) == []

            for _ in range(20):
                assert (await agent.ask("PUT", f"/{name}/stop")).json["state"] == "exited"
                assert (await agent.ask("PUT", f"/{name}/start")).json["state"] == "running"
            assert (await agent.ask("PUT", f"/{name}", {"memory": 40})).json["memory"] == 40
            assert (await agent.ask("DELETE", f"/{other}")).status == 200

            filler.unlink()
            assert (
                await agent.ask("POST", "", {"name": new, "image": busybox_image})
            ).status == 201


async def test_what_no_room_is_left_for_is_507_changes_nothing_and_is_taken_once_there_is_room(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        async with in_process_agent(folder, engine_url, keep=True) as agent:
            name = (await agent.create(busybox_image))["name"]
            filler = fill_disk(folder)

            taken, refusal = await label_until_refused(agent, name)

            assert refusal["status"] == 507
            assert "database is full" in refusal["message"]
            assert (await agent.get(name))["labels"] == taken
            filler.unlink()
            assert (await agent.ask("POST", f"/{name}/labels", {"Value": "a:b"})).status == 200
            before = await agent.get(name)
        async with in_process_agent(folder, engine_url) as again:
            again.used.append(name)
            assert await again.get(name) == before
