"""Many apps that do not heed SIGTERM are stopped at once, beside other operations."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

AT_A_TIME = 8


@pytest.fixture
async def agent(tmp_path: Path, engine_url: str) -> AsyncIterator[InProcessAgent]:
    """Yield an agent whose stops of stubborn apps last until a test kills the container."""
    async with in_process_agent(tmp_path, engine_url, stop_seconds=300, settle_seconds=0) as agent:
        yield agent


async def create_all(agent: InProcessAgent, image: str, count: int) -> list[dict[str, Any]]:
    turns = asyncio.Semaphore(AT_A_TIME)

    async def create() -> dict[str, Any]:
        async with turns:
            return await agent.create(image)

    return await asyncio.gather(*(create() for _ in range(count)))


@pytest.mark.parametrize("count", some_of([8, 60], 8, reason="sixty containers at once"))
async def test_each_stop_of_many_at_once_is_done_and_a_start_beside_them_does_not_wait(
    agent: InProcessAgent,
    stubborn_image: str,
    busybox_image: str,
    docker_client: docker.APIClient,
    count: int,
) -> None:
    other = await agent.create(busybox_image, stop_seconds=0)
    await agent.ask("PUT", f"/{other['name']}/stop")
    records = await create_all(agent, stubborn_image, count)

    containers = [record["container_id"] for record in records]
    signals = docker_client.events(decode=True, filters={"event": "kill", "container": containers})
    paths = [f"/{record['name']}/stop" for record in records]
    stops = [asyncio.create_task(agent.ask("PUT", path)) for path in paths]
    signalled = {(await asyncio.to_thread(next, signals))["id"] for _ in containers}
    signals.close()
    started = await agent.ask("PUT", f"/{other['name']}/start")

    assert signalled == set(containers)
    assert started.status == 200
    assert not any(stop.done() for stop in stops)
    for container in containers:
        await asyncio.to_thread(docker_client.kill, container)
    answers = await asyncio.gather(*stops)
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["exit_code"] for answer in answers} == {137}
