"""The engine crashes under apps: those that should run do so again, the others stay down."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.conftest import variant
from tests.agent.own_engine import IMAGE, OwnEngine
from tests.agent.rig import eventually, rigged

pytestmark = [
    pytest.mark.real("dockerd", "unshare", "ip"),
    # docker-py leaves the socket of a connection that failed to the garbage collector.
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <socket.socket fd=\d+, family=1,"
        ":pytest.PytestUnraisableExceptionWarning"
    ),
]

STUBBORN = """CMD ["/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"]"""


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    """Give an engine with the image that apps are made of."""
    with OwnEngine() as engine:
        engine.start()
        engine.build()
        yield engine


async def test_after_a_crash_of_the_engine_what_should_run_does_and_what_was_stopped_does_not(
    own_engine: OwnEngine, tmp_path: Path
) -> None:
    async with rigged(tmp_path, own_engine.url, timeout_seconds=20, keep=True) as rig:
        running, stopped, by_hand = [await rig.create(IMAGE) for _ in range(3)]
        assert (await rig.ask("PUT", f"/{stopped['name']}/stop")).status == 200
        client = own_engine.client()
        heard = len(rig.changes)
        client.stop(by_hand["container_id"], timeout=1)
        client.close()

        async def told() -> bool:
            return len(rig.changes) > heard

        await eventually(told)

        await asyncio.to_thread(own_engine.kill)
        await asyncio.to_thread(own_engine.start)

        async def answers() -> bool:
            return (await rig.ask("GET", "")).status == 200

        await eventually(answers, within=40)

        async def runs_again() -> bool:
            record = await rig.get(running["name"])
            return (record["state"], record["progress"]) == ("running", None)

        await eventually(runs_again)  # and not only at the look that is taken once a minute
        after = await rig.get(running["name"])
        assert after["container_id"] == running["container_id"]
        assert (await rig.get(stopped["name"]))["state"] == "exited"
        left = await rig.get(by_hand["name"])
        assert (left["state"], left["desired"]) == ("exited", "running")
        client, heard = own_engine.client(), len(rig.changes)
        client.pause(running["container_id"])
        client.close()
        await eventually(told)  # its events are listened to again


async def test_an_engine_that_freezes_during_a_stop_is_told_long_before_the_app_would_be_killed(
    own_engine: OwnEngine, tmp_path: Path
) -> None:
    client = own_engine.client()
    folder = tmp_path / "agent"
    async with rigged(
        folder, own_engine.url, timeout_seconds=20, stop_seconds=300, keep=True
    ) as rig:
        with variant(client, IMAGE, STUBBORN) as image:
            record = await rig.create(image)
        signals = client.events(decode=True, filters={"event": "kill"})
        stop = asyncio.create_task(rig.ask("PUT", f"/{record['name']}/stop"))
        await asyncio.to_thread(next, signals)
        own_engine.freeze()

        async with asyncio.timeout(60):  # far more than the answer may take, far less than 300
            answer = await stop
        own_engine.thaw()
        signals.close()
        client.kill(record["container_id"])
        client.close()

        assert answer.status == 503
        await rig.until(record["name"], state="exited", desired="stopped")


HOLD = "import socket; s = socket.create_server(('127.0.0.1', {})); print(flush=True); input()"


@contextmanager
def held(engine: OwnEngine, port: int) -> Iterator[None]:
    """Have another program listen on a port of the engine's network."""
    command = [*engine.inside(), sys.executable, "-c", HOLD.format(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.communicate(b"\n")


@pytest.fixture
def restoring_engine() -> Iterator[OwnEngine]:
    """Give an engine whose containers outlive it, with the image that apps are made of."""
    with OwnEngine() as engine:
        engine.start(live_restore=True)
        engine.build()
        yield engine


async def test_apps_that_outlive_a_crash_of_the_engine_are_left_alone_and_obey_afterwards(
    restoring_engine: OwnEngine, tmp_path: Path
) -> None:
    async with rigged(tmp_path, restoring_engine.url, timeout_seconds=20) as rig:
        before = await rig.create(IMAGE)
        path = f"/{before['name']}"

        await asyncio.to_thread(restoring_engine.kill)
        assert (await rig.ask("GET", path)).status == 503
        with held(restoring_engine, before["http_port"]):
            await asyncio.to_thread(restoring_engine.start, live_restore=True)

            async def answers() -> bool:
                return (await rig.ask("GET", path)).status == 200

            await eventually(answers, within=40)
            after = await rig.until(before["name"], state="running", progress=None)
            assert {**after, "message": None} == before
            assert (await rig.ask("PUT", path + "/stop")).json["state"] == "exited"
            # Only now does this engine notice that it had lost the port.
            refused = await rig.ask("PUT", path + "/start")
            assert refused.status == 409
            assert f"port {before['http_port']}" in refused.json["message"]
        started = await rig.ask("PUT", path + "/start")
        assert (started.json["state"], started.json["message"]) == ("running", None)
