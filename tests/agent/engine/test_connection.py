"""Clients for the engine: one for each thread, and made anew when the engine was."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agent.engine.connection import WORKERS, Client, Connection, Lane

from agent.engine.protocol import EngineUnavailable
from tests.support.agent.fake_docker_api import VERSION, FakeDockerApi, fake_docker_api
from tests.support.agent.in_process import async_until, in_process_agent


@pytest.fixture
async def fake() -> AsyncIterator[FakeDockerApi]:
    async with fake_docker_api() as engine:
        yield engine


@pytest.fixture
async def connection(fake: FakeDockerApi) -> AsyncIterator[Connection]:
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
        await async_until(busy)
        assert await connection.call(lambda client: str(client.api_version)) == "1.41"
        assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        release.set()
    assert await asyncio.gather(*waits) == [True] * len(waits)


async def test_an_engine_that_came_back_as_another_version_is_spoken_to_anew(
    fake: FakeDockerApi, connection: Connection
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
    fake.respond("GET /version", (200, {**VERSION, "ApiVersion": "1.44"}))
    assert await spoken() == {"1.41"}
    with pytest.raises(EngineUnavailable):
        await connection.call(break_off)
    assert await spoken() == {"1.44"}


async def test_an_engine_that_is_too_old_is_503_with_both_ranges_of_versions(
    fake: FakeDockerApi, tmp_path: Path
) -> None:
    fake.respond("GET /version", (200, {"Version": "19.03.15", "ApiVersion": "1.40"}))

    async with in_process_agent(tmp_path, fake.url) as agent:
        answer = await agent.ask("GET", "")
        hosted_apps = await agent.apps.hosted_apps()

    assert answer.status == 503
    assert "19.03.15" in answer.json["message"]
    assert "1.41 to 1.47" in answer.json["message"]
    assert hosted_apps.docker_state == "unreachable"
