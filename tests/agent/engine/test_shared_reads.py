"""Who asks the same at the same time shares a call, and no answer is older than the question."""

import asyncio

import pytest
from aiohttp import web

from agent.engine.engine import Engine
from agent.engine.errors import EngineTimeout
from tests.support.agent.engines.fake_docker_api import FakeDockerApi

LIST = "GET /containers/json"


class Held:
    """Answers to a list, each of which a test lets go."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.release = asyncio.Semaphore(0)
        self.lists = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.lists += 1
        self.asked.release()
        await self.release.acquire()
        return web.json_response([])


@pytest.fixture
def held(fake: FakeDockerApi) -> Held:
    """Hold back the engine's answers to lists until the test releases them."""
    held = Held()
    fake.handle(LIST, held.answer)
    return held


async def test_what_differs_in_its_filter_is_not_shared(engine: Engine, held: Held) -> None:
    asking = [asyncio.ensure_future(engine.containers(label=label)) for label in ("a", "b")]

    for _ in asking:
        await held.asked.acquire()
        held.release.release()

    assert await asyncio.gather(*asking) == [[], []]


async def test_a_list_that_somebody_changes_is_nobody_elses(engine: Engine, held: Held) -> None:
    held.release.release()

    one, other = await asyncio.gather(engine.containers(), engine.containers())

    assert held.lists == 1
    assert one is not other


async def test_each_caller_waits_for_as_long_as_it_has_time(engine: Engine, held: Held) -> None:
    patient = asyncio.ensure_future(engine.containers())
    await held.asked.acquire()

    with pytest.raises(EngineTimeout):
        await engine.containers(seconds=0.05)

    held.release.release()
    assert await patient == []


@pytest.mark.slow
async def test_the_time_of_a_call_begins_when_it_is_sent(fake: FakeDockerApi) -> None:
    engine, asked = Engine(url=fake.url, timeout_seconds=4), asyncio.Event()

    async def take_a_while(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(2)
        return web.json_response([])

    fake.handle(LIST, take_a_while)
    first = asyncio.ensure_future(engine.containers())
    await asked.wait()

    assert await engine.containers() == []  # after 4 s, of which it was under way for 2 s

    assert await first == []
    await engine.close()


async def test_who_is_in_a_hurry_waits_for_none_of_the_others(engine: Engine, held: Held) -> None:
    others = [asyncio.ensure_future(engine.containers()) for _ in range(10)]
    await held.asked.acquire()

    hurried = asyncio.ensure_future(engine.containers(seconds=20))

    await held.asked.acquire()  # and the first call has no answer yet
    for _ in range(2):
        held.release.release()
    assert await hurried == []
    await asyncio.gather(*others)
