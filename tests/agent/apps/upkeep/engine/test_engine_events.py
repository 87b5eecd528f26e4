"""What a real engine does to an app by itself, or by hand, is reported once."""

import time
from typing import Any

import docker
import pytest

from tests.support.agent.in_process import InProcessAgent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


async def events(agent: InProcessAgent, name: str) -> list[dict[str, Any]]:
    answer = await agent.ask("GET", f"/{name}/events")
    assert answer.status == 200, answer.json
    found: list[dict[str, Any]] = answer.json
    return found


@pytest.mark.engines
async def test_what_is_done_by_hand_and_what_the_agent_does_are_reported_once(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    name, container = record["name"], record["container_id"]
    await agent.ask("PUT", f"/{name}/stop")
    await agent.ask("PUT", f"/{name}/start")
    await agent.ask("PUT", f"/{name}", {"env": {"A": "b"}})
    container = (await agent.get(name))["container_id"]
    docker_client.pause(container)
    docker_client.unpause(container)
    docker_client.kill(container, signal="KILL")

    async def is_up_again() -> bool:
        return ("agent", "start", "done") in [
            (each["by"], each["action"], each["outcome"]) for each in await events(agent, name)
        ]

    await async_until(is_up_again)
    await agent.ask("DELETE", f"/{name}")

    reported = await events(agent, name)
    by_hand = engine_events_to_its_end(docker_client, container)
    assert {"pause", "unpause", "kill", "die"} == set(by_hand)
    assert [(each["by"], each["action"], each["outcome"]) for each in reported] == [
        ("operator", "create", "done"),
        ("operator", "stop", "done"),
        ("operator", "start", "done"),
        ("operator", "update", "done"),
        *(("engine", action, None) for action in by_hand),
        ("agent", "start", "done"),
        ("operator", "delete", "done"),
    ]
    (kill,) = (each for each in reported if each["action"] == "kill")
    (die,) = (each for each in reported if each["action"] == "die")
    assert (kill["message"], die["exit_code"]) == ("signal 9", 137)
    assert [each["time"] for each in reported] == sorted(each["time"] for each in reported)


async def test_events_that_are_too_long_hide_none_of_the_others(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    """Anybody who uses the engine may make a container with large labels."""
    record = await agent.create(busybox_image)
    labels = {"rollcall.app": "ghost", **{f"k{number}": "<" * 40_000 for number in range(10)}}
    foreign = docker_client.create_container(busybox_image, labels=labels)["Id"]
    try:
        docker_client.start(foreign)
        docker_client.kill(foreign)
        docker_client.kill(record["container_id"])

        async def is_up_again() -> bool:
            reported = await events(agent, record["name"])
            return ("agent", "start") in [(each["by"], each["action"]) for each in reported]

        await async_until(is_up_again)
    finally:
        docker_client.remove_container(foreign, force=True)

    assert "die" in [each["action"] for each in await events(agent, record["name"])]
    logged = [each["event"] for each in agent.log.entries]
    assert "container engine unreachable" not in logged
    assert "apps not compared with the engine" not in logged


def engine_events_to_its_end(client: docker.APIClient, container: str) -> list[str]:
    """Return the engine's events of a container until it ended for the first time.

    One pause after another is reported twice at times, and may be reported late.
    """
    actions = ["pause", "unpause", "kill", "die"]
    filters = {"container": container, "event": actions}
    events = client.events(since=0, until=int(time.time()) + 1, filters=filters, decode=True)
    reported = [each["Action"] for each in events]
    return reported[: reported.index("die") + 1]


async def test_an_app_that_crashes_and_is_started_by_the_engine_is_reported_with_its_exit_code(
    agent: InProcessAgent, busybox_image: str
) -> None:
    once = "test -e /srv/ran || { touch /srv/ran; sleep 1; exit 7; }; sleep 999"
    record = await agent.create(busybox_image, command=["/bin/sh", "-c", once])

    async def is_reported() -> bool:
        return len(await events(agent, record["name"])) >= 3

    await async_until(is_reported)

    reported = await events(agent, record["name"])
    assert [(each["by"], each["action"], each["exit_code"]) for each in reported[:3]] == [
        ("operator", "create", None),
        ("engine", "die", 7),
        ("engine", "start", None),
    ]
