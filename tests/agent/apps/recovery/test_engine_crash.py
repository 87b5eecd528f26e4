"""The engine crashes under apps: those that should run do so again, the others stay down."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.agent.containers import derived_image
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import async_until, in_process_agent

pytestmark = pytest.mark.real("dockerd", "unshare", "ip")

STUBBORN = """CMD ["/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"]"""


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start()
        engine.build()
        yield engine


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

        async def told() -> bool:
            return len(agent.changes) > heard

        await async_until(told)

        await asyncio.to_thread(dockerd.kill)
        await asyncio.to_thread(dockerd.start)

        async def answers() -> bool:
            return (await agent.ask("GET", "")).status == 200

        await async_until(answers, within=40)

        async def runs_again() -> bool:
            record = await agent.get(running["name"])
            return (record["state"], record["progress"]) == ("running", None)

        await async_until(runs_again)  # and not only at the look that is taken once a minute
        after = await agent.get(running["name"])
        assert after["container_id"] == running["container_id"]
        assert (await agent.get(stopped["name"]))["state"] == "exited"
        left = await agent.get(by_hand["name"])
        assert (left["state"], left["desired"]) == ("exited", "running")
        client, heard = dockerd.client(), len(agent.changes)
        client.pause(running["container_id"])
        client.close()
        await async_until(told)  # its events are listened to again


async def test_an_engine_that_freezes_during_a_stop_is_told_long_before_the_app_would_be_killed(
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


HOLD = "import socket; s = socket.create_server(('127.0.0.1', {})); print(flush=True); input()"


@contextmanager
def port_taken(engine: Dockerd, port: int) -> Iterator[None]:
    """Listen on a port of the engine's network, as another program."""
    command = [*engine.inside(), sys.executable, "-c", HOLD.format(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.communicate(b"\n")


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
        with port_taken(live_restore_dockerd, before["http_port"]):
            await asyncio.to_thread(live_restore_dockerd.start, live_restore=True)

            async def answers() -> bool:
                return (await agent.ask("GET", path)).status == 200

            await async_until(answers, within=40)
            after = await agent.until(before["name"], state="running", progress=None)
            assert {**after, "message": None} == before
            assert (await agent.ask("PUT", path + "/stop")).json["state"] == "exited"
            # Only now does this engine notice that it had lost the port.
            refused = await agent.ask("PUT", path + "/start")
            assert refused.status == 409
            assert f"port {before['http_port']}" in refused.json["message"]
        started = await agent.ask("PUT", path + "/start")
        assert (started.json["state"], started.json["message"]) == ("running", None)
