"""Containers that go slowly, or that the engine fails to remove."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from agent.engine.engine import Engine
from agent.engine.errors import EngineUnavailable
from tests.support.agent.containers import containers_of, limits, read_file, write_file
from tests.support.agent.engines.fake_docker_api import fake_docker_api
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.requirements import need_root
from tests.support.run.release import some_of
from tests.support.waiting import async_until

REMOVAL = "DELETE /containers/c0ffee"
IN_PROGRESS = (409, {"message": "removal of container c0ffee is already in progress"})
GONE = (404, {"message": "No such container: c0ffee"})


@pytest.mark.slow
async def test_a_removal_that_somebody_else_began_is_waited_for() -> None:
    async with fake_docker_api() as fake:
        fake.respond(REMOVAL, IN_PROGRESS, IN_PROGRESS, IN_PROGRESS, GONE)
        engine = Engine(url=fake.url, timeout_seconds=30)

        await engine.remove("c0ffee")
        await engine.close()

    assert fake.asked.count(REMOVAL) == 4


@pytest.mark.slow
async def test_a_removal_without_end_is_given_up_and_its_outcome_not_known() -> None:
    async with fake_docker_api() as fake:
        fake.respond(REMOVAL, IN_PROGRESS)
        engine = Engine(url=fake.url, timeout_seconds=0.5)

        with pytest.raises(EngineUnavailable, match="removal"):
            await engine.remove("c0ffee")
        await engine.close()


@contextmanager
def unremovable(client: docker.APIClient, container_id: str) -> Iterator[None]:
    """Keep the engine from removing a container: there is a file that nobody can take away."""
    need_root()
    file = Path(client.info()["DockerRootDir"], "containers", container_id, "held")
    file.touch()
    subprocess.run(["chattr", "+i", file], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", file], check=True)


def kill(client: docker.APIClient, container_id: str) -> None:
    """Try to remove a held container; it is dead then."""
    with pytest.raises(docker.errors.APIError, match="unable to remove"):
        client.remove_container(container_id, force=True)
    assert client.inspect_container(container_id)["State"]["Status"] == "dead"


async def until_one_container(agent: InProcessAgent, client: docker.APIClient, name: str) -> None:
    """Wait until an app has one container, which bears its name; the agent looks at each start."""
    client.restart((await agent.get(name))["container_id"], timeout=1)

    async def alone() -> bool:
        return [each["Names"] for each in containers_of(client, name)] == [[f"/{name}"]]

    await async_until(alone)


@pytest.mark.real("chattr")
async def test_an_app_whose_container_is_dead_gets_another_and_loses_nothing(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    name, dead = record["name"], record["container_id"]
    path = f"/{name}"
    write_file(docker_client, record, "kept")

    with unremovable(docker_client, dead):
        kill(docker_client, dead)
        assert (await agent.get(name))["state"] == "dead"
        assert (await agent.ask("GET", path + "/processes")).json == []
        assert (await agent.ask("GET", path + "/stats")).status == 409
        assert (await agent.ask("GET", path + "/logs")).status == 409
        assert (await agent.ask("PUT", path, {"memory": 40})).json["memory"] == 40
        assert (await agent.ask("PUT", path + "/stop")).json["desired"] == "stopped"

        started = (await agent.ask("PUT", path + "/start")).json

        assert (started["state"], started["progress"]) == ("running", None)
        assert started["container_id"] != dead
        assert limits(docker_client, started)[2] == 40 << 20
        assert read_file(docker_client, started) == "kept"
        assert (await agent.ask("PUT", path + "/stop")).json["state"] == "exited"
    await until_one_container(agent, docker_client, name)


@pytest.mark.real("chattr")
@pytest.mark.parametrize(
    "killed", some_of([False, True], False, reason="a dead container has a test of its own")
)
async def test_a_rebuild_is_done_though_the_old_container_cannot_be_removed_yet(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient, *, killed: bool
) -> None:
    record = await agent.create(busybox_image)
    name, old = record["name"], record["container_id"]

    with unremovable(docker_client, old):
        if killed:
            kill(docker_client, old)
        rebuilt = await agent.ask("PUT", f"/{name}/rebuild")

        assert (rebuilt.status, rebuilt.json["progress"]) == (200, None)
        assert rebuilt.json["state"] == "running"
        assert rebuilt.json["container_id"] != old
        assert docker_client.inspect_container(old)["State"]["Status"] == "dead"
    await until_one_container(agent, docker_client, name)


@pytest.mark.real("chattr")
async def test_a_deletion_goes_on_until_the_engine_can_remove_the_container(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]

    with unremovable(docker_client, record["container_id"]):
        rejected = await agent.ask("DELETE", f"/{name}")
        assert rejected.status == 503
        assert "unable to remove" in rejected.json["message"]
        assert (await agent.get(name))["state"] == "deleting"

    async def gone() -> bool:
        return (await agent.ask("GET", f"/{name}")).status == 404

    await async_until(gone)
    assert containers_of(docker_client, name) == []
    with suppress(docker.errors.NotFound):
        pytest.fail(str(docker_client.inspect_volume(f"rollcall-{name}")))


@pytest.mark.real("chattr")
@pytest.mark.release("the same removal by another agent")
async def test_what_could_not_be_removed_goes_in_the_end_after_a_lost_database_too(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path / "before", engine_url, keep=True) as agent:
        record = await agent.create(busybox_image)
    name, old = record["name"], record["container_id"]

    async with in_process_agent(tmp_path / "after", engine_url, adopt=True) as agent:
        agent.used.append(name)
        with unremovable(docker_client, old):
            assert (await agent.ask("PUT", f"/{name}/rebuild")).status == 200
        await until_one_container(agent, docker_client, name)
