"""An app that ends again and again, and that the engine is about to start anew."""

from pathlib import Path
from typing import Any

import docker
import pytest

from tests.agent.conftest import variant
from tests.agent.looking import containers_of, limits, write
from tests.agent.rig import Answer, Rig, eventually, rigged

pytestmark = pytest.mark.real

LIMIT = "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max"
BREAKS = (
    f"cat {LIMIT} 2>/dev/null; while [ ! -e /srv/file ]; do sleep 0.1; done; echo broken; exit 3"
)


@pytest.fixture
def breaking_image(docker_client: docker.APIClient, busybox_image: str) -> Any:
    """Give an image whose app ends as soon as there is a file in its volume."""
    with variant(docker_client, busybox_image, f'CMD ["/bin/sh", "-c", "{BREAKS}"]') as image:
        yield image


async def broken(rig: Rig, client: docker.APIClient, image: str) -> dict[str, Any]:
    """Give the record of an app between two starts, with a while to go before the next."""
    record = await rig.create(image)
    write(client, record, "x")

    async def rests_long() -> bool:
        return bool((await rig.get(record["name"]))["restarts"] >= 5)

    await eventually(rests_long)
    return await rig.until(record["name"], state="restarting")


async def ask_between_two_starts(
    rig: Rig, name: str, *requests: tuple[str, str, str | None]
) -> list[Answer]:
    """Ask all of it in one pause; where it was too short, in the next, which is twice as long."""
    for _ in range(4):
        before = await rig.until(name, state="restarting")
        answers = [await rig.ask(method, f"/{name}{path}", body) for method, path, body in requests]
        after = await rig.get(name)
        if (after["state"], after["restarts"]) == ("restarting", before["restarts"]):
            return answers
    raise AssertionError("it never rested for as long as the requests took")


async def test_nothing_is_asked_of_an_app_between_two_starts_that_needs_it_up(
    rig: Rig, breaking_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)

    started, keys = await ask_between_two_starts(
        rig, record["name"], ("PUT", "/start", None), ("PUT", "/keys", "a good password")
    )

    assert started.status == 200
    assert started.json["container_id"] == record["container_id"]
    assert started.json["desired"] == "running"
    assert keys.status == 409
    assert "is restarting" in keys.json["message"]
    assert (record["exit_code"], record["desired"]) == (3, "running")


async def test_processes_and_stats_between_two_starts_are_those_of_an_app_that_does_not_run(
    rig: Rig, breaking_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)

    processes, stats = await ask_between_two_starts(
        rig, record["name"], ("GET", "/processes", None), ("GET", "/stats", None)
    )

    assert processes.json == []
    assert stats.status == 409


async def test_a_stop_ends_the_starting_anew(
    rig: Rig, breaking_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)

    stopped = (await rig.ask("PUT", f"/{record['name']}/stop")).json

    assert (stopped["state"], stopped["desired"]) == ("exited", "stopped")
    assert stopped["exit_code"] == 3
    state = docker_client.inspect_container(record["container_id"])["State"]
    assert (state["Running"], state["Restarting"]) == (False, False)


async def test_other_limits_hold_from_the_next_start_on(
    rig: Rig, breaking_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)
    name = record["name"]

    updated = await rig.ask("PUT", f"/{name}", {"memory": 24, "cpu": 30})

    assert updated.status == 200
    assert (updated.json["memory"], updated.json["cpu"]) == (24, 30)
    assert updated.json["container_id"] == record["container_id"]
    assert limits(docker_client, record) == (100_000, 30_000, 24 << 20, 24 << 20)

    async def started_with_it() -> bool:
        log: bytes = docker_client.logs(record["container_id"])
        return str(24 << 20) in log.decode()

    await eventually(started_with_it, within=60)


async def test_a_rebuild_goes_back_to_it_where_the_new_container_ends_as_well(
    rig: Rig, breaking_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)
    name = record["name"]

    rebuilt = await rig.ask("PUT", f"/{name}/rebuild")

    assert rebuilt.status == 409
    assert "exit code 3" in rebuilt.json["message"]
    assert "broken" in rebuilt.json["message"]
    assert [each["Id"] for each in containers_of(docker_client, name)] == [record["container_id"]]
    after = await rig.until(name, state="restarting")
    assert (after["desired"], after["progress"]) == ("running", None)


async def test_an_update_to_an_image_that_works_ends_its_troubles(
    rig: Rig, breaking_image: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await broken(rig, docker_client, breaking_image)
    name = record["name"]

    updated = await rig.ask("PUT", f"/{name}", {"image": busybox_image})

    assert (updated.status, updated.json["state"]) == (200, "running")
    assert updated.json["restarts"] == 0
    assert len(containers_of(docker_client, name)) == 1


async def test_a_delete_leaves_nothing_that_could_start_anew(
    tmp_path: Path, engine_url: str, breaking_image: str, docker_client: docker.APIClient
) -> None:
    async with rigged(tmp_path, engine_url, keep=True) as rig:
        record = await broken(rig, docker_client, breaking_image)

        deleted = await rig.ask("DELETE", f"/{record['name']}")

        assert deleted.status == 200
        assert containers_of(docker_client, record["name"]) == []
        assert (await rig.ask("GET", f"/{record['name']}")).status == 404
