"""Clients for the engine: one for each thread, and made anew when the engine was."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.containers import EngineUnavailable
from agent.engine.connection import WORKERS, Client, Connection, Lane
from tests.agent.fake_engine import VERSION, FakeEngine, faked
from tests.agent.rig import eventually, rigged


@pytest.fixture
async def fake() -> AsyncIterator[FakeEngine]:
    async with faked() as engine:
        yield engine


@pytest.fixture
async def connection(fake: FakeEngine) -> AsyncIterator[Connection]:
    connection = Connection(url=fake.url, timeout_seconds=30)
    yield connection
    connection.close()


async def test_no_two_threads_share_a_client(connection: Connection) -> None:
    together = threading.Barrier(WORKERS, timeout=60)

    def work(client: Client) -> Client:
        together.wait()
        return client

    for _ in range(3):
        clients = await asyncio.gather(*(connection.call(work) for _ in range(WORKERS)))
        assert len(set(map(id, clients))) == WORKERS


async def test_what_takes_long_stands_neither_in_the_way_of_reading_nor_of_other_threads(
    connection: Connection,
) -> None:
    release, begun = threading.Event(), list[Client]()

    def work(client: Client) -> bool:
        begun.append(client)
        return release.wait()

    waits = [
        asyncio.ensure_future(connection.call(work, lane=Lane.SLOW)) for _ in range(5 * WORKERS)
    ]

    async def busy() -> bool:
        return len(begun) >= WORKERS

    try:
        await eventually(busy)
        assert await connection.call(lambda client: str(client.api_version)) == "1.41"
        assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        release.set()
    assert await asyncio.gather(*waits) == [True] * len(waits)


async def test_an_engine_that_came_back_as_another_version_is_spoken_to_anew(
    fake: FakeEngine, connection: Connection
) -> None:
    def break_off(client: Client) -> None:
        raise ConnectionResetError(str(client))

    async def spoken() -> set[str]:
        together = threading.Barrier(WORKERS, timeout=60)

        def work(client: Client) -> str:
            together.wait()
            return str(client.api_version)

        return set(await asyncio.gather(*(connection.call(work) for _ in range(WORKERS))))

    assert await spoken() == {"1.41"}
    fake.say("GET /version", (200, {**VERSION, "ApiVersion": "1.44"}))
    assert await spoken() == {"1.41"}
    with pytest.raises(EngineUnavailable):
        await connection.call(break_off)
    assert await spoken() == {"1.44"}


async def test_an_engine_that_is_too_old_is_503_with_both_ranges_of_versions(
    fake: FakeEngine, tmp_path: Path
) -> None:
    fake.say("GET /version", (200, {"Version": "19.03.15", "ApiVersion": "1.40"}))

    async with rigged(tmp_path, fake.url) as rig:
        answer = await rig.ask("GET", "")
        hosting = await rig.apps.hosting()

    assert answer.status == 503
    assert "19.03.15" in answer.json["message"]
    assert "1.41 to 1.47" in answer.json["message"]
    assert hosting.docker_state == "unreachable"
