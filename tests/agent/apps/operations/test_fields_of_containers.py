"""What an app may ask of its container: a command, ports, the time to stop; and zeros."""

import asyncio
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.containers import derived_image, limits, run_in_container
from tests.support.agent.in_process import InProcessAgent, in_process_agent

pytestmark = pytest.mark.real

# Beside the port 8000, which the image names by that label.
MORE_PORTS = "LABEL rollcall.http_port=\nEXPOSE 3000 9000"


async def test_an_app_runs_the_command_that_it_asks_for_until_it_asks_for_none(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    command = ["/bin/sh", "-c", "echo $0 > /srv/arguments; exec sleep 999", "a b"]
    record = await agent.create(busybox_image, command=command)
    reported = run_in_container(docker_client, record, "cat /srv/arguments")
    path = f"/{record['name']}"

    same = await agent.ask("PUT", path, {"command": command})
    own = await agent.ask("PUT", path, {"command": []})

    assert record["command"] == command
    assert reported.strip() == "a b"
    assert same.json["container_id"] == record["container_id"]
    assert own.json["command"] == []
    assert "roll call" in await agent.page(own.json)


async def test_a_command_is_rejected_where_the_settings_forbid_it(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    command = ["/bin/sh", "-c", "sleep 999"]
    async with in_process_agent(tmp_path, engine_url, keep=True) as agent:
        name = (await agent.create(busybox_image, command=command))["name"]
    async with in_process_agent(tmp_path, engine_url, allow_command=False) as agent:
        agent.used.append(name)
        kept = await agent.ask("PUT", f"/{name}", {"command": command, "env": {"A": "1"}})
        other = await agent.ask("PUT", f"/{name}", {"command": ["/bin/true"]})
        new = await agent.ask(
            "POST", "", {"name": agent.name(), "image": busybox_image, "command": command}
        )

    assert (kept.status, kept.json["command"]) == (200, command)
    assert [other.status, new.status] == [400, 400]
    assert "`apps.allow_command`" in other.json["message"]
    assert "`apps.allow_command`" in new.json["message"]


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"command": ["a\0b"]}, "NUL"),
    ({"command": ["x" * 9000]}, "8192"),
    ({"command": "sleep 1"}, "command"),
    ({"http_target": 70000}, "http_target"),
    ({"ssh_target": -1}, "ssh_target"),
    ({"stop_seconds": 3601}, "stop_seconds"),
    ({"stop_seconds": -1}, "stop_seconds"),
    ({"pull": "sometimes"}, "pull"),
]


async def test_an_invalid_field_is_rejected_by_its_name(
    agent: InProcessAgent, busybox_image: str
) -> None:
    body = {"name": agent.name(), "image": busybox_image}
    for fields, word in INVALID:
        answer = await agent.ask("POST", "", {**body, **fields})

        assert answer.status == 400, fields
        assert word in answer.json["message"]


async def test_of_several_exposed_ports_the_record_says_which_was_taken_until_one_is_chosen(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, MORE_PORTS) as image:
        record = await agent.create(image)
        name = record["name"]
        listed = [each for each in (await agent.ask("GET", "")).json if each["name"] == name]
        stopped = await agent.ask("PUT", f"/{name}/stop")
        chosen = await agent.ask("PUT", f"/{name}", {"http_target": 9000, "ssh_target": 3000})
        inspected = docker_client.inspect_container(chosen.json["container_id"])
        back = await agent.ask("PUT", f"/{name}", {"http_target": None})
        await agent.ask("DELETE", f"/{name}")

    assert "3000, 8000 and 9000" in record["message"]
    assert "leads to 8000" in record["message"]
    assert [each["message"] for each in listed] == [record["message"]]
    assert stopped.json["message"] == record["message"]
    assert (chosen.json["http_target"], chosen.json["message"]) == (9000, None)
    bindings = {
        inside: int(outside[0]["HostPort"])
        for inside, outside in inspected["HostConfig"]["PortBindings"].items()
    }
    assert bindings == {"9000/tcp": record["http_port"], "3000/tcp": record["ssh_port"]}
    assert back.json["http_target"] is None


async def test_zeros_leave_ports_and_limits_as_they_are(
    agent: InProcessAgent, busybox_image: str
) -> None:
    zeros = dict.fromkeys(
        ("ssh_port", "http_port", "cpu", "memory", "ssh_target", "http_target"), 0
    )
    record = await agent.create(busybox_image, **zeros)

    changed = await agent.ask("PUT", f"/{record['name']}", {**zeros, "description": "tea"})

    assert (record["cpu"], record["memory"]) == (50, 32)  # the defaults
    assert changed.status == 200
    assert changed.json == {**record, "description": "tea", "revision": 2}


BY_HAND: dict[str, dict[str, Any]] = {
    "cpu": {"cpu_quota": 70_000},
    "memory": {"mem_limit": 40 << 20, "memswap_limit": 40 << 20},
}


async def test_an_update_to_the_recorded_limits_undoes_what_was_changed_by_hand(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, cpu=50, memory=32)
    before = limits(docker_client, record)
    for field, changed in BY_HAND.items():
        docker_client.update_container(record["container_id"], **changed)
        assert limits(docker_client, record) != before

        answer = await agent.ask("PUT", f"/{record['name']}", {field: record[field]})

        assert answer.status == 200
        assert answer.json["container_id"] == record["container_id"]
        assert limits(docker_client, record) == before


async def test_an_app_has_its_own_time_to_stop(
    tmp_path: Path, engine_url: str, stubborn_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path, engine_url, stop_seconds=300) as agent:
        record = await agent.create(stubborn_image)
        name = record["name"]
        async with asyncio.timeout(100):  # also for the container that has had 300 seconds so far
            changed = await agent.ask("PUT", f"/{name}", {"stop_seconds": 0})
            stopped = await agent.ask("PUT", f"/{name}/stop")
        # The engine heeds it when it ends, and so does a `docker stop`.
        inspected = docker_client.inspect_container(changed.json["container_id"])
        reset = await agent.ask("PUT", f"/{name}", {"stop_seconds": None})
        again = docker_client.inspect_container(reset.json["container_id"])

    assert (record["stop_seconds"], changed.json["stop_seconds"]) == (None, 0)
    assert inspected["Config"]["StopTimeout"] == 0
    assert (stopped.status, stopped.json["exit_code"]) == (200, 137)
    assert (reset.json["stop_seconds"], again["Config"]["StopTimeout"]) == (None, 300)
