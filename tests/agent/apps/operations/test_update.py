"""Updating an app: in the running container where the engine can, else by another."""

from typing import Any

import docker
import pytest

from tests.support.agent.containers import (
    containers_of,
    limits,
    read_file,
    run_in_container,
    write_file,
)
from tests.support.agent.in_process import InProcessAgent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


@pytest.mark.engines
async def test_limits_change_in_the_running_container(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, cpu=50, memory=24)

    answer = await agent.ask("PUT", f"/{record['name']}", {"memory": 48, "cpu": 75})

    assert answer.status == 200
    assert (answer.json["memory"], answer.json["cpu"]) == (48, 75)
    assert answer.json["container_id"] == record["container_id"]
    assert answer.json["started_at"] == record["started_at"]
    assert limits(docker_client, record) == (100_000, 75_000, 48 << 20, 48 << 20)

    # Those of a stopped app count from its next start on.
    await agent.ask("PUT", f"/{record['name']}/stop")
    assert (await agent.ask("PUT", f"/{record['name']}", {"memory": 20})).status == 200
    started = (await agent.ask("PUT", f"/{record['name']}/start")).json

    assert started["container_id"] == record["container_id"]
    assert limits(docker_client, started)[2] == 20 << 20


@pytest.mark.engines
async def test_less_memory_than_the_app_uses_is_a_conflict(
    agent: InProcessAgent, hungry_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(hungry_image, memory=64)

    async def holds_it() -> bool:
        used = (await agent.ask("GET", f"/{record['name']}/stats")).json["memory_bytes"]
        return bool(used > 12 << 20)

    await async_until(holds_it)
    answer = await agent.ask("PUT", f"/{record['name']}", {"memory": 8})

    assert answer.status == 409
    assert "MiB" in answer.json["message"]
    assert (await agent.get(record["name"]))["memory"] == 64
    assert limits(docker_client, record)[2] == 64 << 20


@pytest.mark.release("another limit that is less than what the app uses")
async def test_memory_that_somebody_has_raised_and_the_app_uses_is_not_taken_away(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, memory=16)
    raised = 64 << 20
    docker_client.update_container(record["container_id"], mem_limit=raised, memswap_limit=raised)
    run_in_container(
        docker_client, record, "busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=32"
    )

    answer = await agent.ask("PUT", f"/{record['name']}", {"memory": 16})

    assert answer.status == 409
    assert "MiB now and would be killed" in answer.json["message"]
    assert limits(docker_client, record)[2] == raised
    after = await agent.get(record["name"])
    assert (after["state"], after["started_at"]) == ("running", record["started_at"])


@pytest.mark.engines
async def test_other_ports_replace_the_container_and_keep_the_data(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    write_file(docker_client, record, "kept")
    wanted = {"ssh_port": record["http_port"], "http_port": record["ssh_port"]}

    answer = await agent.ask("PUT", f"/{record['name']}", wanted)

    assert answer.status == 200, answer.json
    assert answer.json["container_id"] != record["container_id"]
    assert answer.json["http_port"] == record["ssh_port"]
    assert "roll call" in await agent.page(answer.json)
    assert read_file(docker_client, answer.json) == "kept"
    (only,) = containers_of(docker_client, record["name"])
    assert only["Names"] == [f"/{record['name']}"]


async def test_an_empty_update_changes_nothing_and_a_bad_one_is_named(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    empty = await agent.ask("PUT", f"/{record['name']}", {})
    assert (empty.status, empty.json) == (200, record)

    bad: list[tuple[str, Any]] = [
        ("ssh_port", -1),
        ("http_port", 70000),
        ("memory", 5),
        ("memory", None),
        ("cpu", None),
        ("image", ""),
        ("description", "x" * 1025),
        ("privileged", True),
    ]
    for field, value in bad:
        answer = await agent.ask("PUT", f"/{record['name']}", {field: value})

        assert answer.status == 400, (field, value)
        assert field in answer.json["message"]
        assert await agent.get(record["name"]) == record


@pytest.mark.engines
async def test_an_update_to_an_image_that_does_not_start_leaves_the_old_app_running(
    agent: InProcessAgent, busybox_image: str, failing_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)

    answer = await agent.ask("PUT", f"/{record['name']}", {"image": failing_image})

    assert answer.status == 409
    assert "exit code 3" in answer.json["message"]
    after = await agent.get(record["name"])
    assert after["state"] == "running"
    assert after["container_id"] == record["container_id"]
    assert after["image"] == busybox_image
    assert "exit code 3" in after["message"]
    assert "roll call" in await agent.page(after)
    assert len(containers_of(docker_client, record["name"])) == 1
