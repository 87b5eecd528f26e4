"""The engine crashes under apps: those that should run do so again, those stopped stay down."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.containers import STUBBORN, derived_image
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import in_process_agent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real("dockerd", "unshare", "ip")


@pytest.fixture
def dockerd(dockerd: Dockerd) -> Dockerd:
    """Return an engine with the image that apps are made of."""
    dockerd.start()
    dockerd.build()
    return dockerd


async def test_after_a_crash_of_the_engine_what_should_run_does_and_what_was_stopped_does_not(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, dockerd.url, timeout_seconds=20, keep=True) as agent:
        running, stopped, by_hand = [await agent.create(IMAGE) for _ in range(3)]
        assert (await agent.ask("PUT", f"/{stopped['name']}/stop")).status == 200
        client = dockerd.client()
        heard = len(agent.changes)
        client.stop(by_hand["container_id"], timeout=1)
        client.close()

        async def reported() -> bool:
            return len(agent.changes) > heard

        await async_until(reported)

        await asyncio.to_thread(dockerd.kill)
        await asyncio.to_thread(dockerd.start)
        await agent.until_engine_found()

        async def runs_again() -> bool:
            record = await agent.get(running["name"])
            return (record["state"], record["progress"]) == ("running", None)

        await async_until(runs_again)  # and not only at the look that is taken once a minute
        after = await agent.get(running["name"])
        assert after["container_id"] == running["container_id"]
        assert (await agent.get(stopped["name"]))["state"] == "exited"
        # It was stopped by hand in another run of the engine.
        await agent.until(by_hand["name"], state="running", progress=None)
        client, heard = dockerd.client(), len(agent.changes)
        client.pause(running["container_id"])
        client.close()
        await async_until(reported)  # its events are listened to again


async def test_an_engine_that_freezes_during_a_stop_is_reported_long_before_the_app_would_be_killed(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    client = dockerd.client()
    folder = tmp_path / "agent"
    async with in_process_agent(
        folder, dockerd.url, timeout_seconds=20, stop_seconds=300, keep=True
    ) as agent:
        with derived_image(client, IMAGE, STUBBORN) as image:
            record = await agent.create(image)
        signals = client.events(decode=True, filters={"event": "kill"})
        stop = asyncio.create_task(agent.ask("PUT", f"/{record['name']}/stop"))
        await asyncio.to_thread(next, signals)
        dockerd.freeze()

        async with asyncio.timeout(60):  # far more than the answer may take, far less than 300
            answer = await stop
        dockerd.thaw()
        signals.close()
        client.kill(record["container_id"])
        client.close()

        assert answer.status == 503
        await agent.until(record["name"], state="exited", desired="stopped")


@pytest.fixture
def live_restore_dockerd() -> Iterator[Dockerd]:
    """Yield an engine whose containers outlive it, with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start(live_restore=True)
        engine.build()
        yield engine


async def test_apps_that_outlive_a_crash_of_the_engine_are_left_alone_and_obey_afterwards(
    live_restore_dockerd: Dockerd, tmp_path: Path
) -> None:
    async with in_process_agent(tmp_path, live_restore_dockerd.url, timeout_seconds=20) as agent:
        before = await agent.create(IMAGE)
        path = f"/{before['name']}"

        await asyncio.to_thread(live_restore_dockerd.kill)
        assert (await agent.ask("GET", path)).status == 503
        with live_restore_dockerd.port_taken(before["http_port"]):
            await asyncio.to_thread(live_restore_dockerd.start, live_restore=True)
            await agent.until_engine_found()
            after = await agent.until(before["name"], state="running", progress=None)
            assert {**after, "message": None} == before
            assert (await agent.ask("PUT", path + "/stop")).json["state"] == "exited"
            # Only now does this engine notice that it had lost the port.
            rejected = await agent.ask("PUT", path + "/start")
            assert rejected.status == 409
            assert f"port {before['http_port']}" in rejected.json["message"]
        started = await agent.ask("PUT", path + "/start")
        assert (started.json["state"], started.json["message"]) == ("running", None)
