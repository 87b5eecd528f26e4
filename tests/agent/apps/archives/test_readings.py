"""An app while its data is read, paused or not, and readings that end early; over a real engine."""

import asyncio

import aiohttp
import docker
import pytest

from tests.support.agent.apps.transfers import HEADERS, get, helpers_of, url
from tests.support.agent.containers import run_in_container
from tests.support.agent.in_process import InProcessAgent
from tests.support.agent.tars import unpacked
from tests.support.waiting import async_until

pytestmark = pytest.mark.real

LARGE = 64 << 20


async def test_a_paused_app_stands_still_while_it_is_read_and_goes_on_after_that(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        assert (await agent.get(name))["state"] == "paused"
        busy = await agent.ask("PUT", f"/{name}/stop", headers={"Prefer": "wait=0"})
        assert (busy.status, "exported" in busy.json["message"]) == (409, True)
        rest = await response.content.read()

    assert len(rest) > LARGE - (1 << 16)
    await agent.until(name, state="running", progress=None)
    assert helpers_of(docker_client, name) == []

    # And so it does when its reader leaves.
    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        response.close()

    await agent.until(name, state="running", progress=None)
    await async_until(lambda: nothing_left(docker_client, name))


async def nothing_left(client: docker.APIClient, name: str) -> bool:
    return await asyncio.to_thread(helpers_of, client, name) == []


async def test_an_app_that_was_paused_by_hand_stays_paused(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    docker_client.pause(record["container_id"])

    async with agent.session.get(url(agent, record) + "?pause=true", headers=HEADERS) as response:
        assert unpacked(await response.read()).keys() == {"srv"}

    await agent.until(record["name"], state="paused", progress=None)


async def test_while_its_data_is_read_an_app_can_be_changed_and_read_but_not_deleted(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        rejected = await agent.ask("DELETE", f"/{name}")
        assert (rejected.status, "being read" in rejected.json["message"]) == (409, True)
        assert (await agent.ask("PUT", f"/{name}/rebuild")).status == 200
        assert (await agent.ask("PUT", f"/{name}/stop")).status == 200
        assert len(await get(agent, record)) > LARGE
        assert len(await response.content.read()) > LARGE - (1 << 16)

    await async_until(lambda: nothing_left(docker_client, name))
    assert (await agent.ask("DELETE", f"/{name}")).status == 200


async def test_a_reading_that_the_engine_is_interrupted_looks_interrupted(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    run_in_container(docker_client, record, f"busybox truncate -s {LARGE} /srv/large")

    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        await response.content.readexactly(1 << 16)
        run_in_container(docker_client, record, "busybox truncate -s 1000 /srv/large")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
