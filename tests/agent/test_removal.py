"""Containers that go slowly, or that the engine fails to remove."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from agent.containers import EngineUnavailable
from agent.engine import DockerEngine
from tests.agent.fake_engine import faked
from tests.agent.looking import containers_of, limits, read, write
from tests.agent.rig import Rig, eventually, rigged
from tests.conftest import need_root

REMOVAL = "DELETE /containers/c0ffee"
IN_PROGRESS = (409, {"message": "removal of container c0ffee is already in progress"})
GONE = (404, {"message": "No such container: c0ffee"})


async def test_a_removal_that_somebody_else_began_is_waited_for() -> None:
    async with faked() as fake:
        fake.say(REMOVAL, IN_PROGRESS, IN_PROGRESS, IN_PROGRESS, GONE)
        engine = DockerEngine(url=fake.url, timeout_seconds=30)

        await engine.remove("c0ffee")
        await engine.close()

    assert fake.asked.count(REMOVAL) == 4


async def test_a_removal_without_end_is_given_up_and_its_outcome_not_known() -> None:
    async with faked() as fake:
        fake.say(REMOVAL, IN_PROGRESS)
        engine = DockerEngine(url=fake.url, timeout_seconds=0.5)

        with pytest.raises(EngineUnavailable, match="removal"):
            await engine.remove("c0ffee")
        await engine.close()


@contextmanager
def held(client: docker.APIClient, container_id: str) -> Iterator[None]:
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
    """Have a held container removed, in vain: it is dead then."""
    with pytest.raises(docker.errors.APIError, match="unable to remove"):
        client.remove_container(container_id, force=True)
    assert client.inspect_container(container_id)["State"]["Status"] == "dead"


async def swept(rig: Rig, client: docker.APIClient, name: str) -> None:
    """Wait until an app has one container, which bears its name; the agent looks at each start."""
    client.restart((await rig.get(name))["container_id"], timeout=1)

    async def alone() -> bool:
        return [each["Names"] for each in containers_of(client, name)] == [[f"/{name}"]]

    await eventually(alone)


@pytest.mark.real("chattr")
async def test_an_app_whose_container_is_dead_gets_another_and_loses_nothing(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)
    name, dead = record["name"], record["container_id"]
    path = f"/{name}"
    write(docker_client, record, "kept")

    with held(docker_client, dead):
        kill(docker_client, dead)
        assert (await rig.get(name))["state"] == "dead"
        assert (await rig.ask("GET", path + "/processes")).json == []
        assert (await rig.ask("GET", path + "/stats")).status == 409
        assert (await rig.ask("GET", path + "/logs")).status == 409
        assert (await rig.ask("PUT", path, {"memory": 40})).json["memory"] == 40
        assert (await rig.ask("PUT", path + "/stop")).json["desired"] == "stopped"

        started = (await rig.ask("PUT", path + "/start")).json

        assert (started["state"], started["progress"]) == ("running", None)
        assert started["container_id"] != dead
        assert limits(docker_client, started)[2] == 40 << 20
        assert read(docker_client, started) == "kept"
        assert (await rig.ask("PUT", path + "/stop")).json["state"] == "exited"
    await swept(rig, docker_client, name)


@pytest.mark.real("chattr")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_rebuild_is_done_though_the_old_container_cannot_be_removed_yet(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient, *, killed: bool
) -> None:
    record = await rig.create(busybox_image)
    name, old = record["name"], record["container_id"]

    with held(docker_client, old):
        if killed:
            kill(docker_client, old)
        rebuilt = await rig.ask("PUT", f"/{name}/rebuild")

        assert (rebuilt.status, rebuilt.json["progress"]) == (200, None)
        assert rebuilt.json["state"] == "running"
        assert rebuilt.json["container_id"] != old
        assert docker_client.inspect_container(old)["State"]["Status"] == "dead"
    await swept(rig, docker_client, name)


@pytest.mark.real("chattr")
async def test_a_deletion_goes_on_until_the_engine_can_remove_the_container(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)
    name = record["name"]

    with held(docker_client, record["container_id"]):
        refused = await rig.ask("DELETE", f"/{name}")
        assert refused.status == 503
        assert "unable to remove" in refused.json["message"]
        assert (await rig.get(name))["state"] == "deleting"

    async def gone() -> bool:
        return (await rig.ask("GET", f"/{name}")).status == 404

    await eventually(gone)
    assert containers_of(docker_client, name) == []
    with suppress(docker.errors.NotFound):
        pytest.fail(str(docker_client.inspect_volume(f"rollcall-{name}")))


@pytest.mark.real("chattr")
async def test_what_could_not_be_removed_goes_in_the_end_after_a_lost_database_too(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with rigged(tmp_path / "before", engine_url, keep=True) as rig:
        record = await rig.create(busybox_image)
    name, old = record["name"], record["container_id"]

    async with rigged(tmp_path / "after", engine_url, adopt=True) as rig:
        rig.used.append(name)
        with held(docker_client, old):
            assert (await rig.ask("PUT", f"/{name}/rebuild")).status == 200
        await swept(rig, docker_client, name)
