"""The state of an app: the engine's word, and the agent's own while it works on it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

WANTS_MEMORY = "sleep 1; busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=60; exit 7"
TAKES_ITS_TIME = "trap 'sleep 6; exit 5' TERM; while true; do sleep 0.1; done"


async def test_an_app_that_ends_by_itself_shows_how_and_how_often(
    agent: InProcessAgent, busybox_image: str
) -> None:
    command = ["/bin/sh", "-c", WANTS_MEMORY]
    name = (await agent.create(busybox_image, command=command, memory=16))["name"]

    ended = await agent.until(name, state="restarting", oom_killed=True)

    assert ended["exit_code"] == 7
    assert ended["finished_at"].endswith("Z")
    assert ended["desired"] == "running"

    async def again() -> bool:
        return bool((await agent.get(name))["restarts"] >= 2)

    await async_until(again)


async def test_a_stop_gives_an_app_its_time_be_it_longer_than_any_other_answer_of_the_engine(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    command = ["/bin/sh", "-c", TAKES_ITS_TIME]
    async with in_process_agent(tmp_path, engine_url, stop_seconds=120, timeout_seconds=3) as agent:
        name = (await agent.create(busybox_image, command=command))["name"]

        stopped = await agent.ask("PUT", f"/{name}/stop")

        assert (stopped.status, stopped.json["exit_code"]) == (200, 5)
        assert stopped.json["state"] == "exited"


async def test_an_app_that_does_not_end_in_its_time_is_killed(
    agent: InProcessAgent, stubborn_image: str
) -> None:
    record = await agent.create(stubborn_image)

    stopped = await agent.ask("PUT", f"/{record['name']}/stop")

    assert (stopped.json["state"], stopped.json["exit_code"]) == ("exited", 137)
    assert stopped.json["oom_killed"] is False


CHANGES: list[tuple[str, str, Any, str]] = [
    ("PUT", "/rebuild", None, "rebuilding"),
    ("PUT", "", {"env": {"A": "1"}}, "updating"),
    ("PUT", "/stop", None, "running"),
    ("DELETE", "", None, "deleting"),
]


async def test_what_is_being_done_is_the_state(agent: InProcessAgent, stubborn_image: str) -> None:
    name = (await agent.create(stubborn_image))["name"]
    for method, path, body, state in CHANGES:
        await agent.ask("PUT", f"/{name}/start")

        change = asyncio.create_task(agent.ask(method, f"/{name}{path}", body))
        await agent.until_busy(name)
        seen = await agent.get(name)
        (listed,) = [each for each in (await agent.ask("GET", "")).json if each["name"] == name]

        assert seen["state"] == listed["state"] == state
        assert seen["progress"]["by"] == "operator"
        assert (await change).status == 200


async def test_a_list_of_apps_in_a_state_that_there_is_not_is_rejected(
    agent: InProcessAgent,
) -> None:
    answer = await agent.ask("GET", "?state=exited&state=stopped")

    assert answer.status == 400
    assert "`state` is 'stopped'" in answer.json["message"]
    assert "exited" in answer.json["message"]
