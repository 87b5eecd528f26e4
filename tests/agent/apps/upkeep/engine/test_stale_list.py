"""An engine whose disk was full lists containers as they were; apps are shown as they are."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.machine.disks import fill_disk, free_disk, memory_disk
from tests.support.requirements import need_root
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "unshare", "ip", "mount")


@pytest.fixture
def small_dockerd(dockerd: Dockerd) -> Iterator[Dockerd]:
    """Yield an engine with a small disk of its own, and the image that apps are made of."""
    need_root()
    with memory_disk(dockerd.data_root, size="120m"):
        dockerd.start()
        dockerd.build()
        yield dockerd
        dockerd.stop()


def listed_and_real_state(dockerd: Dockerd, container_id: str) -> tuple[str, str]:
    """Return what the engine's list says of a container, and what an inspect does."""
    with closing(dockerd.client()) as client:
        (entry,) = client.containers(all=True, filters={"id": container_id})
        return entry["State"], client.inspect_container(container_id)["State"]["Status"]


async def die_unnoticed(dockerd: Dockerd, container_id: str) -> None:
    """Kill the process of a container whose engine has no room to write that down."""
    with closing(dockerd.client()) as client:
        os.kill(client.inspect_container(container_id)["State"]["Pid"], signal.SIGKILL)

    async def is_stale() -> bool:
        return listed_and_real_state(dockerd, container_id) == ("running", "exited")

    await async_until(is_stale)


async def shown_states(agent: InProcessAgent, name: str) -> set[Any]:
    """Return the states of an app in each answer that shows one, as the words of a record."""
    listed = await agent.ask("GET", "")
    found = {each["state"] for each in listed.json if each["name"] == name}
    found.add((await agent.get(name))["state"])
    hosted = await agent.apps.hosted.hosted_apps()
    found.update("running" if each.running else "exited" for each in hosted.apps)
    return found


async def until_shown(agent: InProcessAgent, name: str, state: str) -> None:
    async def is_shown() -> bool:
        return await shown_states(agent, name) == {state}

    await async_until(is_shown)


async def test_an_app_that_dies_while_the_engines_disk_is_full_is_shown_so_and_started_again(
    small_dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, small_dockerd.url, keep=True) as agent:
        record = await agent.create(IMAGE)
        name, container_id = record["name"], record["container_id"]
        filler = fill_disk(small_dockerd.data_root)

        await die_unnoticed(small_dockerd, container_id)

        await until_shown(agent, name, "exited")
        down = await agent.get(name)
        assert down["desired"] == "running"
        await agent.until(name, state="exited", progress=None)
        free_disk(filler)
        await until_shown(agent, name, "running")
        assert listed_and_real_state(small_dockerd, container_id) == ("running", "running")
        assert (await agent.get(name))["container_id"] == container_id


async def test_an_agent_that_starts_finds_what_the_engine_lists_wrongly(
    small_dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, small_dockerd.url, keep=True) as agent:
        record = await agent.create(IMAGE)
    filler = fill_disk(small_dockerd.data_root)
    await die_unnoticed(small_dockerd, record["container_id"])
    free_disk(filler)
    assert listed_and_real_state(small_dockerd, record["container_id"]) == ("running", "exited")

    async with in_process_agent(tmp_path, small_dockerd.url, keep=True) as agent:
        await agent.until(record["name"], state="running")
        await until_shown(agent, record["name"], "running")


async def test_a_stop_on_a_full_disk_is_stored_once_there_is_room_and_holds_at_the_next_start(
    small_dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, small_dockerd.url, keep=True) as agent:
        name = (await agent.create(IMAGE))["name"]
        filler = fill_disk(small_dockerd.data_root)
        stopped = await agent.ask("PUT", f"/{name}/stop")
        assert stopped.json["state"] == "exited"
        assert "has not stored yet that the app is stopped" in stopped.json["message"]

        async def tried_again() -> bool:
            entries = agent.log.entries
            return any(each["event"] == "operation failed" for each in entries)

        await async_until(tried_again)
        free_disk(filler)
        stored = await agent.until(name, message=None, state="exited", desired="stopped")

        await asyncio.to_thread(small_dockerd.kill)
        await asyncio.to_thread(small_dockerd.start)
        await agent.until_engine_found()
        await until_shown(agent, name, "exited")
        assert (await agent.get(name))["started_at"] == stored["started_at"]


@pytest.mark.release("another engine with a small disk")
async def test_an_app_stopped_while_the_engines_disk_is_full_is_down_after_its_next_start(
    small_dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, small_dockerd.url, keep=True) as agent:
        name = (await agent.create(IMAGE))["name"]
        filler = fill_disk(small_dockerd.data_root)
        assert (await agent.ask("PUT", f"/{name}/stop")).json["state"] == "exited"
        await until_shown(agent, name, "exited")
        free_disk(filler)

        await asyncio.to_thread(small_dockerd.kill)
        await asyncio.to_thread(small_dockerd.start)
        await agent.until_engine_found()

        await agent.until(name, state="exited", desired="stopped", progress=None)
        with closing(small_dockerd.client()) as client:
            container = client.inspect_container(name)

            async def is_kept_down() -> bool:
                seen = client.inspect_container(name)
                policy = seen["HostConfig"]["RestartPolicy"]["Name"]
                return (policy, seen["State"]["Status"]) == ("no", "exited")

            await async_until(is_kept_down)
            assert container["Id"] == (await agent.get(name))["container_id"]


async def test_an_app_stopped_after_the_engine_gave_it_up_stays_down_at_the_engines_next_start(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    dockerd.start()
    dockerd.build()
    async with in_process_agent(tmp_path, dockerd.url, timeout_seconds=20, keep=True) as agent:
        record = await agent.create(IMAGE)
        name = record["name"]
        await asyncio.to_thread(dockerd.stop)
        with dockerd.port_taken(record["http_port"]):
            await asyncio.to_thread(dockerd.start)
            await agent.until_engine_found()
            await agent.until(name, state="exited")
            taken = await agent.ask("PUT", f"/{name}/start")
            port = record["http_port"]
            assert taken.status == 409
            assert taken.json["message"] == (
                f"port {port} of app `{name}` is held by another program; end that one, or give the"
                " app another port"
            )
            stopped = await agent.ask("PUT", f"/{name}/stop")
            assert (stopped.status, stopped.json["desired"]) == (200, "stopped")

        await asyncio.to_thread(dockerd.stop)
        await asyncio.to_thread(dockerd.start)
        await agent.until_engine_found()

        with closing(dockerd.client()) as client:
            assert client.inspect_container(name)["State"]["Status"] == "exited"
            await agent.until(name, state="exited", desired="stopped")
            started = await agent.ask("PUT", f"/{name}/start")
            assert started.json["state"] == "running"
            policy = client.inspect_container(name)["HostConfig"]["RestartPolicy"]["Name"]
            assert policy == "unless-stopped"
