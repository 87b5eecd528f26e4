"""An app that ends again and again, and that the engine is about to start anew."""

from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.containers import containers_of, derived_image, limits, write_file
from tests.support.agent.in_process import AgentResponse, InProcessAgent, in_process_agent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

LIMIT = "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max"
CRASHES = (
    f"cat {LIMIT} 2>/dev/null; while [ ! -e /srv/file ]; do sleep 0.1; done; echo broken; exit 3"
)


@pytest.fixture
def crashing_image(docker_client: docker.APIClient, busybox_image: str) -> Any:
    """Yield an image whose app ends as soon as there is a file in its volume."""
    with derived_image(
        docker_client, busybox_image, f'CMD ["/bin/sh", "-c", "{CRASHES}"]'
    ) as image:
        yield image


async def restarting_app(
    agent: InProcessAgent, client: docker.APIClient, image: str
) -> dict[str, Any]:
    """Return the record of an app between two starts, with a while to go before the next."""
    record = await agent.create(image)
    write_file(client, record, "x")

    async def rests_long() -> bool:
        return bool((await agent.get(record["name"]))["restarts"] >= 5)

    await async_until(rests_long)
    return await agent.until(record["name"], state="restarting")


async def ask_between_two_starts(
    agent: InProcessAgent, name: str, *requests: tuple[str, str, str | None]
) -> list[AgentResponse]:
    """Ask all of it in one pause; where it was too short, in the next, which is twice as long."""
    for _ in range(4):
        before = await agent.until(name, state="restarting")
        answers = [
            await agent.ask(method, f"/{name}{path}", body) for method, path, body in requests
        ]
        after = await agent.get(name)
        if (after["state"], after["restarts"]) == ("restarting", before["restarts"]):
            return answers
    raise AssertionError("it never rested for as long as the requests took")


async def test_between_two_starts_an_app_is_down_and_a_stop_ends_the_starting_anew(
    agent: InProcessAgent, crashing_image: str, docker_client: docker.APIClient
) -> None:
    record = await restarting_app(agent, docker_client, crashing_image)
    name = record["name"]
    assert (record["exit_code"], record["desired"]) == (3, "running")

    started, keys, processes, stats = await ask_between_two_starts(
        agent,
        name,
        ("PUT", "/start", None),
        ("PUT", "/keys", "a good password"),
        ("GET", "/processes", None),
        ("GET", "/stats", None),
    )
    stopped = (await agent.ask("PUT", f"/{name}/stop")).json

    assert started.status == 200
    assert started.json["container_id"] == record["container_id"]
    assert started.json["desired"] == "running"
    assert keys.status == 409
    assert "is restarting" in keys.json["message"]
    assert processes.json == []
    assert stats.status == 409
    assert (stopped["state"], stopped["desired"]) == ("exited", "stopped")
    assert stopped["exit_code"] == 3
    state = docker_client.inspect_container(record["container_id"])["State"]
    assert (state["Running"], state["Restarting"]) == (False, False)


async def test_other_limits_hold_from_the_next_start_on_and_another_image_ends_its_troubles(
    agent: InProcessAgent, crashing_image: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await restarting_app(agent, docker_client, crashing_image)
    name = record["name"]

    limited = await agent.ask("PUT", f"/{name}", {"memory": 24, "cpu": 30})

    assert limited.status == 200
    assert (limited.json["memory"], limited.json["cpu"]) == (24, 30)
    assert limited.json["container_id"] == record["container_id"]
    assert limits(docker_client, record) == (100_000, 30_000, 24 << 20, 24 << 20)

    async def started_with_it() -> bool:
        log: bytes = docker_client.logs(record["container_id"])
        return str(24 << 20) in log.decode()

    await async_until(started_with_it, within=60)
    await agent.until(name, state="restarting")

    updated = await agent.ask("PUT", f"/{name}", {"image": busybox_image})

    assert (updated.status, updated.json["state"]) == (200, "running")
    assert updated.json["restarts"] == 0
    assert len(containers_of(docker_client, name)) == 1


async def test_a_rebuild_whose_container_ends_as_well_is_undone_and_a_delete_leaves_nothing(
    tmp_path: Path, engine_url: str, crashing_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        record = await restarting_app(agent, docker_client, crashing_image)
        name = record["name"]

        rebuilt = await agent.ask("PUT", f"/{name}/rebuild")

        assert rebuilt.status == 409
        assert "exit code 3" in rebuilt.json["message"]
        assert "broken" in rebuilt.json["message"]
        left = [each["Id"] for each in containers_of(docker_client, name)]
        assert left == [record["container_id"]]
        # The agent itself may be about to start it once more.
        after = await agent.until(name, state="restarting", progress=None)
        assert after["desired"] == "running"

        deleted = await agent.ask("DELETE", f"/{name}")

        assert deleted.status == 200
        assert containers_of(docker_client, name) == []
        assert (await agent.ask("GET", f"/{name}")).status == 404
