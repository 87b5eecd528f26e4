"""An app whose container somebody has disconnected from its network, or whose network is gone."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.engines.neighbour import fetch
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "unshare", "ip", "curl")


@pytest.fixture
def dockerd(dockerd: Dockerd) -> Dockerd:
    """Return an engine with the image that apps are made of."""
    dockerd.start()
    dockerd.build()
    return dockerd


@pytest.fixture(
    params=some_of([False, True], True, reason="the same in the engine's default network"),
    ids=["default", "isolated"],
)
async def agent(
    request: pytest.FixtureRequest, dockerd: Dockerd, tmp_path: Path
) -> AsyncIterator[InProcessAgent]:
    """Yield an agent whose apps are in the engine's default network, or in that of the agent."""
    async with in_process_agent(tmp_path, dockerd.url, keep=True, isolated=request.param) as agent:
        yield agent


@pytest.fixture
def client(dockerd: Dockerd) -> Iterator[docker.APIClient]:
    """Yield the engine's client."""
    client = dockerd.client()
    yield client
    client.close()


def networks(client: docker.APIClient, record: dict[str, Any]) -> list[str]:
    seen = client.inspect_container(record["container_id"])
    return list(seen["NetworkSettings"]["Networks"])


async def until_reachable(dockerd: Dockerd, record: dict[str, Any]) -> None:
    async def is_reachable() -> bool:
        return "Hello" in fetch(dockerd.inside(), f"127.0.0.1:{record['http_port']}")

    await async_until(is_reachable)


async def test_a_start_connects_an_app_again_that_was_disconnected(
    dockerd: Dockerd, agent: InProcessAgent, client: docker.APIClient
) -> None:
    record = await agent.create(IMAGE)
    name = record["name"]
    (network,) = networks(client, record)
    for calls in (["start"], ["stop", "start"], ["restart"]):
        client.disconnect_container_from_network(record["container_id"], network)

        lost = await agent.get(name)
        assert f"disconnected from the network `{network}`" in lost["message"]
        assert "start the app" in lost["message"]

        for call in calls:
            answer = await agent.ask("PUT", f"/{name}/{call}")
            assert answer.status == 200, answer.json

        assert networks(client, record) == [network], calls
        assert (await agent.get(name))["message"] is None
        await until_reachable(dockerd, record)


@pytest.mark.release("another engine for a network of somebody else")
async def test_an_app_in_another_network_instead_is_connected_to_its_own(
    dockerd: Dockerd, agent: InProcessAgent, client: docker.APIClient
) -> None:
    record = await agent.create(IMAGE)
    name = record["name"]
    (network,) = networks(client, record)
    client.create_network("other")
    client.disconnect_container_from_network(record["container_id"], network)
    client.connect_container_to_network(record["container_id"], "other")
    assert f"disconnected from the network `{network}`" in (await agent.get(name))["message"]

    started = await agent.ask("PUT", f"/{name}/start")

    assert set(networks(client, record)) == {network, "other"}
    await until_reachable(dockerd, record)
    if network == "rollcall":
        assert "connected to `other`, too" in started.json["message"]
        rebuilt = await agent.ask("PUT", f"/{name}/rebuild")
        assert (networks(client, rebuilt.json), rebuilt.json["message"]) == ([network], None)


@pytest.mark.parametrize("agent", [True], indirect=True)
async def test_an_app_whose_network_was_removed_is_to_be_rebuilt(
    dockerd: Dockerd, agent: InProcessAgent, client: docker.APIClient
) -> None:
    records = [await agent.create(IMAGE) for _ in range(2)]
    for record in records:
        assert (await agent.ask("PUT", f"/{record['name']}/stop")).status == 200
    running = await agent.create(IMAGE)
    (network,) = networks(client, running)
    for record in (records[0], running):
        client.disconnect_container_from_network(record["container_id"], network)
    client.remove_network(network)

    for call in ("restart?dry_run=true", "restart", "start?dry_run=true", "start"):
        rejected = await agent.ask("PUT", f"/{running['name']}/{call}")
        assert (rejected.status, "rebuild the app" in rejected.json["message"]) == (409, True), call
    # It would recover first what was left unfinished.
    described = await agent.ask("PUT", f"/{running['name']}", {"description": "still up"})
    assert (described.status, described.json["state"]) == (200, "running")
    assert (await agent.get(running["name"]))["started_at"] == running["started_at"]

    for record in records:
        rejected = await agent.ask("PUT", f"/{record['name']}/start")
        assert rejected.status == 409
        assert "rebuild the app" in rejected.json["message"]
        assert (await agent.ask("PUT", f"/{record['name']}/rebuild")).status == 200
        started = await agent.ask("PUT", f"/{record['name']}/start")
        assert (started.status, started.json["state"]) == (200, "running")
        await until_reachable(dockerd, record)
