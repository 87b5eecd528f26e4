"""The engine crashes under apps: those that should run do so again, the others stay down."""

import asyncio
from collections.abc import Iterator
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
    async with rigged(tmp_path, own_engine.url, timeout_seconds=5, keep=True) as rig:
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
        after = await rig.until(running["name"], state="running", progress=None)
        assert after["container_id"] == running["container_id"]
        assert (await rig.get(stopped["name"]))["state"] == "exited"
        left = await rig.get(by_hand["name"])
        assert (left["state"], left["desired"]) == ("exited", "running")


async def test_an_engine_that_freezes_during_a_stop_is_told_long_before_the_app_would_be_killed(
    own_engine: OwnEngine, tmp_path: Path
) -> None:
    client = own_engine.client()
    folder = tmp_path / "agent"
    async with rigged(
        folder, own_engine.url, timeout_seconds=4, stop_seconds=300, keep=True
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
