"""`desired` is kept over a real engine: kills, stops by hand, crashes, taken ports, reboots."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import docker
import pytest

from dev.waiting import until
from tests.support.agent.containers import STUBBORN, derived_image
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.daemons import Daemons
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = [pytest.mark.real("dockerd", "unshare", "ip"), pytest.mark.long(1)]

CRASHING_LATER = 'CMD ["/bin/sh", "-c", "sleep 1; exit 3"]'
STARTING = "starting an app that is down"


@pytest.fixture
def dockerd(dockerd: Dockerd) -> Dockerd:
    """Return an engine with the image that apps are made of."""
    dockerd.start()
    dockerd.build()
    return dockerd


@pytest.fixture
async def agent(dockerd: Dockerd, tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    """Yield an agent's apps on that engine."""
    async with agent_of(tmp_path, dockerd) as agent:
        yield agent


@pytest.fixture
def client(dockerd: Dockerd) -> Iterator[docker.APIClient]:
    """Yield the engine's client."""
    client = dockerd.client()
    yield client
    client.close()


def agent_of(folder: Path, dockerd: Dockerd) -> AbstractAsyncContextManager[InProcessAgent]:
    return in_process_agent(folder, dockerd.url, timeout_seconds=20, keep=True)


async def until_reported(agent: InProcessAgent, name: str, *words: str) -> dict[str, Any]:
    """Wait until the record's message holds these words; return the record."""
    found = dict[str, Any]()

    async def reported() -> bool:
        found.update(await agent.get(name))
        return all(word in (found["message"] or "") for word in words)

    await async_until(reported, within=60)
    return found


async def test_a_container_that_is_killed_by_hand_runs_again(
    agent: InProcessAgent, client: docker.APIClient
) -> None:
    record = await agent.create(IMAGE)

    client.kill(record["container_id"])
    await agent.until(record["name"], state="exited")
    again = await agent.until(record["name"], state="running", progress=None)

    assert again["container_id"] == record["container_id"]
    assert STARTING in [each["event"] for each in agent.log.entries]


async def test_a_stop_by_hand_is_heeded_by_each_agent_until_the_engine_restarts(
    dockerd: Dockerd, tmp_path: Path, client: docker.APIClient
) -> None:
    async with agent_of(tmp_path, dockerd) as agent:
        known, unseen, other = [await agent.create(IMAGE) for _ in range(3)]
        client.stop(known["container_id"], timeout=1)
        left = await until_reported(agent, known["name"], "stopped through the container engine")
        assert (left["state"], left["desired"]) == ("exited", "running")
    client.stop(unseen["container_id"], timeout=1)
    client.kill(other["container_id"])
    async with agent_of(tmp_path, dockerd) as agent:
        for each in (known, unseen):
            left = await until_reported(agent, each["name"], "stopped through the container engine")
            assert left["state"] == "exited"
        await agent.until(other["name"], state="running")

        await asyncio.to_thread(dockerd.stop)
        await asyncio.to_thread(dockerd.start)
        await agent.until_engine_found()

        for each in (known, unseen, other):
            await agent.until(each["name"], state="running", message=None)


@pytest.mark.release("waits for an engine that ends slowly")
async def test_an_engine_that_shuts_down_slowly_leaves_nothing_down_afterwards(
    dockerd: Dockerd, agent: InProcessAgent, client: docker.APIClient
) -> None:
    with derived_image(client, IMAGE, STUBBORN) as stubborn:
        records = [
            await agent.create(IMAGE),
            await agent.create(stubborn, stop_seconds=14),
        ]
        # The first one is down for more than ten seconds while the engine waits for the other.
        await asyncio.to_thread(dockerd.stop)
        await asyncio.to_thread(dockerd.start)
        await agent.until_engine_found()

        for record in records:
            await agent.until(record["name"], state="running", message=None)
            await agent.ask("DELETE", f"/{record['name']}")


@pytest.mark.engines
@pytest.mark.parametrize(
    "first", some_of(["agent", "engine"], "agent", reason="a reboot for each order")
)
def test_apps_run_after_a_reboot_whoever_comes_back_first(
    dockerd: Dockerd, daemons: Daemons, first: str
) -> None:
    agent = daemons.agent(engine=dockerd.url, apps={"bind": "127.0.0.1", "stop_seconds": 1})
    names, before = ("running", "stopped"), dict[str, Any]()
    for name in names:
        created = agent.ask("POST", "/v1/apps", json={"name": name, "image": IMAGE, "memory": 32})
        assert created.status_code == 201, created.text
        before[name] = created.json()
    assert agent.ask("PUT", "/v1/apps/stopped/stop").ok
    agent.kill()
    dockerd.kill()

    if first == "engine":
        dockerd.start()
    agent.start()
    if first == "agent":
        assert agent.ask("GET", "/v1/apps").status_code == 503
        dockerd.start()

    def record(name: str) -> dict[str, Any]:
        answer = agent.ask("GET", f"/v1/apps/{name}")
        found: dict[str, Any] = answer.json() if answer.ok else {}
        return found

    until(lambda: record("running").get("state") == "running", "the app", within=60)
    until(lambda: record("running").get("progress", 1) is None, "the end of its start", within=60)
    after = record("running")
    assert (after["container_id"], after["message"]) == (before["running"]["container_id"], None)
    assert record("stopped")["state"] == "exited"


async def test_an_app_whose_port_was_taken_for_a_while_says_so_and_runs_when_it_is_free(
    dockerd: Dockerd, agent: InProcessAgent
) -> None:
    record = await agent.create(IMAGE)
    name = record["name"]
    await asyncio.to_thread(dockerd.stop)
    with dockerd.port_taken(record["http_port"]):
        await asyncio.to_thread(dockerd.start)
        await agent.until_engine_found()

        left = await until_reported(agent, name, "address already in use", "tried 2 times")

        assert (left["state"], left["desired"]) == ("exited", "running")
    await agent.until(name, state="running", message=None)


async def test_an_app_that_crashes_at_each_start_is_restarted_by_the_engine_alone(
    agent: InProcessAgent, client: docker.APIClient
) -> None:
    with derived_image(client, IMAGE, CRASHING_LATER) as image:
        record = await agent.create(image)

        async def crashed_often() -> bool:
            return bool((await agent.get(record["name"]))["restarts"] >= 3)

        await async_until(crashed_often)
        reported = await until_reported(
            agent, record["name"], "ended by itself", "with exit code 3 at"
        )
        assert (reported["state"], reported["healthy"]) in {("restarting", None), ("running", None)}
        (hosted,) = (await agent.apps.hosted.hosted_apps()).apps
        assert hosted.healthy is False
        assert STARTING not in [each["event"] for each in agent.log.entries]
        await agent.ask("DELETE", f"/{record['name']}")
