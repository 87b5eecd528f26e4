"""What others do to an app's container is seen at once, and never fought or spread."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.engine.engine import Engine
from tests.support.agent.containers import derived_image, read_file, run_in_container
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


@asynccontextmanager
async def change_noticed(agent: InProcessAgent) -> AsyncIterator[None]:
    """Assert that the agent notices the change made in the context."""
    before = len(agent.changes)
    yield

    async def heard() -> bool:
        return len(agent.changes) > before

    await async_until(heard)


async def test_a_container_stopped_killed_paused_and_started_by_others_shows_its_state(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    name, container = record["name"], record["container_id"]

    async with change_noticed(agent):
        docker_client.pause(container)
    assert (await agent.get(name))["state"] == "paused"
    assert (await agent.ask("GET", f"/{name}/processes")).status == 200
    rejected = await agent.ask("PUT", f"/{name}/keys", "a good password")
    assert rejected.status == 409
    assert "is paused" in rejected.json["message"]
    async with change_noticed(agent):
        docker_client.unpause(container)
    assert (await agent.get(name))["state"] == "running"
    async with change_noticed(agent):
        docker_client.stop(container, timeout=1)
    stopped = await agent.get(name)
    assert (stopped["state"], stopped["desired"]) == ("exited", "running")
    async with change_noticed(agent):
        docker_client.start(container)
    assert (await agent.get(name))["state"] == "running"
    async with change_noticed(agent):
        docker_client.kill(container)
    # The engine's own restart policy may be quicker than the question.
    assert (await agent.until(name, state="exited"))["exit_code"] == 137


async def test_a_paused_app_can_be_stopped_started_and_rebuilt(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    path = f"/{record['name']}"

    docker_client.pause(record["container_id"])
    assert (await agent.ask("PUT", path + "/start")).json["state"] == "running"
    docker_client.pause(record["container_id"])
    stopped = (await agent.ask("PUT", path + "/stop")).json
    assert (stopped["state"], stopped["exit_code"]) == ("exited", 0)  # it was let go on, to end
    await agent.ask("PUT", path + "/start")
    docker_client.pause(record["container_id"])
    assert (await agent.ask("PUT", path + "/rebuild")).json["state"] == "running"


async def test_a_renamed_container_is_still_the_app_and_gets_its_name_back_by_a_rebuild(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    async with change_noticed(agent):
        docker_client.rename(record["container_id"], record["name"] + "-x")

    assert (await agent.get(record["name"]))["state"] == "running"
    rebuilt = (await agent.ask("PUT", f"/{record['name']}/rebuild")).json

    inspected = docker_client.inspect_container(rebuilt["container_id"])
    assert inspected["Name"] == f"/{record['name']}"


async def test_a_removed_container_is_missing_until_a_start_makes_another(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    path = f"/{record['name']}"
    async with change_noticed(agent):
        docker_client.remove_container(record["container_id"], force=True)

    missing = await agent.get(record["name"])
    assert (missing["state"], missing["container_id"]) == ("missing", None)
    assert (await agent.ask("PUT", path + "/stop")).status == 200
    assert (await agent.ask("GET", path + "/processes")).json == []
    assert (await agent.ask("GET", path + "/stats")).status == 409
    logs = await agent.ask("GET", path + "/logs")
    assert (logs.status, logs.json["message"]) == (
        409,
        f"app `{record['name']}` has no container, so there is no log; start it",
    )
    assert (await agent.ask("PUT", path, {"memory": 40})).json["memory"] == 40

    started = await agent.ask("PUT", path + "/start")
    assert started.status == 200
    assert (started.json["state"], started.json["http_port"]) == ("running", record["http_port"])
    host = docker_client.inspect_container(started.json["container_id"])["HostConfig"]
    assert host["Memory"] == 40 << 20


MALICE = (
    "LABEL rollcall.data=/etc rollcall.http_port=99999 rollcall.ssh_port=0x16"
    ' rollcall.user="root:x" rollcall.app=evil rollcall.agent=evil rollcall.spec="{}"'
)


async def test_what_an_image_claims_in_its_labels_is_checked_or_ignored(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, MALICE) as image:
        record = await agent.create(image)
        inspected = docker_client.inspect_container(record["container_id"])
        await agent.ask("DELETE", f"/{record['name']}")

    assert [mount["Destination"] for mount in inspected["Mounts"]] == ["/srv"]
    assert inspected["Config"]["Labels"]["rollcall.app"] == record["name"]
    assert set(inspected["HostConfig"]["PortBindings"]) == {"22/tcp", "8000/tcp"}


async def test_the_container_ports_come_from_the_labels_the_image_exposes_or_the_settings(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async def inside(lines: str) -> set[str]:
        with derived_image(docker_client, busybox_image, lines) as image:
            record: dict[str, Any] = await agent.create(image)
            inspected = docker_client.inspect_container(record["container_id"])
            await agent.ask("DELETE", f"/{record['name']}")
        return set(inspected["HostConfig"]["PortBindings"])

    assert await inside("LABEL rollcall.http_port=81 rollcall.ssh_port=2222") == {
        "81/tcp",
        "2222/tcp",
    }
    # Left empty, the label is as if it were not there: then it is what the image exposes.
    assert await inside('LABEL rollcall.http_port="" rollcall.ssh_port=8000\nEXPOSE 9000') == {
        "8000/tcp",
        "9000/tcp",
    }


async def test_a_disk_too_full_is_507_for_new_data_and_all_else_goes_on(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as roomy:
        name = (await roomy.create(busybox_image))["name"]
    async with in_process_agent(tmp_path, engine_url, min_free_percent=100) as full:
        full.used.append(name)
        body = {"name": full.name(), "image": busybox_image}

        assert (await full.ask("POST", "", body)).status == 507
        assert (await full.ask("PUT", f"/{name}/rebuild")).status == 507
        rejected = await full.ask("PUT", f"/{name}", {"env": {"A": "1"}})
        assert rejected.status == 507
        assert "free" in rejected.json["message"]
        assert (await full.ask("PUT", f"/{name}", {"memory": 40})).status == 200
        assert (await full.ask("PUT", f"/{name}/stop")).status == 200
        assert (await full.ask("PUT", f"/{name}/start")).status == 200
        assert (await full.ask("DELETE", f"/{name}")).status == 200


async def test_a_stopped_app_that_somebody_started_may_end_in_order_when_it_is_replaced(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    farewell = "trap 'echo bye >> /srv/file; exit 0' TERM; while true; do sleep 0.1; done"
    with derived_image(
        docker_client, busybox_image, f'CMD ["/bin/sh", "-c", "{farewell}"]'
    ) as image:
        record = await agent.create(image)
        await agent.ask("PUT", f"/{record['name']}/stop")
        docker_client.start(record["container_id"])
        await agent.until(record["name"], state="running")

        rebuilt = (await agent.ask("PUT", f"/{record['name']}/rebuild")).json

        assert (rebuilt["state"], rebuilt["desired"]) == ("created", "stopped")
        docker_client.start(rebuilt["container_id"])
        assert read_file(docker_client, rebuilt) == "bye\nbye\n"
        await agent.ask("DELETE", f"/{record['name']}")


async def test_what_only_looks_at_a_container_is_no_event(
    agent: InProcessAgent, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    container, engine, heard = (
        record["container_id"],
        Engine(url=engine_url, timeout_seconds=30),
        list[str](),
    )
    foreign = docker_client.create_container(busybox_image)["Id"]
    events = engine.events("rollcall.app", since=time.time())
    try:
        docker_client.top(container)
        run_in_container(docker_client, record, "true")
        docker_client.rename(foreign, record["name"] + "-foreign")
        docker_client.pause(container)
        async with aclosing(events):
            async for event in events:
                if event.container_id in (container, foreign):
                    heard.append(event.action)
                if event.action == "pause":
                    break
    finally:
        docker_client.remove_container(foreign)
        await engine.close()

    assert heard == ["pause"]
