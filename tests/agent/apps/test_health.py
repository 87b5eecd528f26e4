"""The checks of records over a real engine: by HTTP at the published port, and by a command."""

import asyncio
import re
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.containers import containers_of, derived_image, run_in_container
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

PAGE = {"path": "/index.html", "interval_seconds": 1, "timeout_seconds": 5, "retries": 2}
AS_USER = {"command": ["/bin/sh", "-c", 'test "$(busybox id -u)" = 65534'], "interval_seconds": 1}

WITHOUT_PROGRAM = re.compile(r"the command ended with exit code 12[67]: .*no-such-program")


def page_away(client: docker.APIClient, record: dict[str, Any]) -> None:
    run_in_container(client, record, "busybox mv /www/index.html /www/away")


def page_back(client: docker.APIClient, record: dict[str, Any]) -> None:
    run_in_container(client, record, "busybox mv /www/away /www/index.html")


async def test_an_app_without_its_page_is_unhealthy_and_restarted_until_it_has_it_again(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, health=PAGE)
    name = record["name"]
    await agent.until(name, healthy=True)

    page_away(docker_client, record)
    unhealthy = await agent.until(name, healthy=False)
    assert "GET /index.html was answered with 404" in unhealthy["message"]

    async def restarted() -> bool:
        now = await agent.get(name)
        runs = (now["state"], now["progress"]) == ("running", None)
        return runs and bool(now["started_at"] > record["started_at"])

    await async_until(restarted)
    page_back(docker_client, record)
    well = await agent.until(name, healthy=True, progress=None)
    assert (well["container_id"], well["message"]) == (record["container_id"], None)


async def test_a_program_that_has_the_port_of_a_disconnected_app_is_not_taken_for_it(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, health=PAGE)
    name, port = record["name"], record["http_port"]
    await agent.until(name, healthy=True)
    asked = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    inspected = docker_client.inspect_container(record["container_id"])
    (network,) = inspected["NetworkSettings"]["Networks"]
    docker_client.disconnect_container_from_network(record["container_id"], network)
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        unhealthy = await agent.until(name, healthy=False)
        assert f"the container engine does not publish port {port}" in unhealthy["message"]
    assert asked == []


@pytest.mark.engines
async def test_a_command_is_run_as_the_user_of_the_container(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, "USER 65534") as image:
        record = await agent.create(image, health=AS_USER)

        await agent.until(record["name"], healthy=True)

        await agent.ask("DELETE", f"/{record['name']}")


async def test_an_update_without_its_page_goes_back_and_one_with_it_is_healthy_at_once(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, health={**PAGE, "retries": 1, "timeout_seconds": 1})
    path = f"/{record['name']}"
    rejected = await agent.ask(
        "PUT", path, {"command": ["httpd", "-f", "-p", "8000", "-h", "/srv"]}
    )
    updated = await agent.ask("PUT", path, {"env": {"A": "1"}})

    assert rejected.status == 409
    assert "GET /index.html was answered with 404" in rejected.json["message"]
    assert (updated.status, updated.json["healthy"]) == (200, True)
    assert len(containers_of(docker_client, record["name"])) == 1


@pytest.mark.engines
@pytest.mark.parametrize(
    "command",
    some_of(
        [["/no-such-program"], ["no-such-program"], ["/bin/sh", "-c", "no-such-program"]],
        ["no-such-program"],
        reason="further commands, for whose retries each test waits",
    ),
)
async def test_a_check_whose_program_is_missing_ends_an_update_after_its_retries_with_its_output(
    tmp_path: Path, engine_url: str, busybox_image: str, command: list[str]
) -> None:
    async with in_process_agent(
        tmp_path, engine_url, settle_seconds=0, healthy_seconds=3600
    ) as agent:
        record = await agent.create(busybox_image)
        path = f"/{record['name']}"
        health = {"command": command, "interval_seconds": 1, "retries": 2}

        rejected = await agent.ask("PUT", path, {"env": {"A": "1"}, "health": health})

        assert rejected.status == 409
        assert WITHOUT_PROGRAM.search(rejected.json["message"])
        assert rejected.json["message"].isprintable()
        assert (await agent.get(record["name"]))["container_id"] == record["container_id"]
        assert (await agent.ask("PUT", path, {"health": health})).status == 200
        unhealthy = await agent.until(record["name"], healthy=False)
        assert WITHOUT_PROGRAM.search(unhealthy["message"])


WRONG_SHAPES: list[tuple[Any, str]] = [
    ({}, "health"),
    ({"path": "/", "intervals": 1}, "intervals"),
    ({"path": "/", "interval_seconds": 0}, "interval_seconds"),
    ({"path": "/", "timeout_seconds": "5"}, "timeout_seconds"),
    ({"path": "/", "retries": True}, "retries"),
    ({"path": "/", "start_seconds": -1}, "start_seconds"),
    ("/", "health"),
]


async def test_a_check_of_the_wrong_shape_is_400_and_names_the_field(
    agent: InProcessAgent, busybox_image: str
) -> None:
    for health, field in WRONG_SHAPES:
        body = {"name": agent.name(), "image": busybox_image, "health": health}

        answer = await agent.ask("POST", "", body)

        assert answer.status == 400, health
        assert field in answer.json["message"]
