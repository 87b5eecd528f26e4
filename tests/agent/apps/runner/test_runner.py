"""One change at a time for an app, and none that a client's leaving ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest

from tests.support.agent.in_process import InProcessAgent, in_process_agent

pytestmark = pytest.mark.real


@pytest.fixture
async def agent(tmp_path: Path, engine_url: str) -> AsyncIterator[InProcessAgent]:
    """Yield an agent whose stops of stubborn apps last until a test kills the container."""
    async with in_process_agent(tmp_path, engine_url, stop_seconds=300) as running:
        yield running


async def test_a_second_change_waits_its_turn_and_then_is_a_conflict_that_names_the_first(
    agent: InProcessAgent, stubborn_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(stubborn_image)
    name = record["name"]

    stopping = asyncio.create_task(agent.ask("PUT", f"/{name}/stop"))
    await agent.until_busy(name)
    busy = await agent.ask("PUT", f"/{name}/start", headers={"Prefer": "wait=0"})
    waiting = asyncio.create_task(agent.ask("PUT", f"/{name}/start"))
    docker_client.kill(record["container_id"])
    waited = await waiting

    assert busy.status == 409
    assert "being stopped" in busy.json["message"]
    assert "`operator`" in busy.json["message"]
    assert (await stopping).status == 200
    assert waited.status == 200
    assert waited.json["state"] == "running"
    docker_client.kill(record["container_id"])


async def test_a_change_goes_on_when_its_client_has_gone(
    agent: InProcessAgent, stubborn_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(stubborn_image)

    request = asyncio.create_task(agent.ask("PUT", f"/{record['name']}/stop"))
    await agent.until_busy(record["name"])
    request.cancel()
    docker_client.kill(record["container_id"])

    await agent.until(record["name"], state="exited", desired="stopped")
