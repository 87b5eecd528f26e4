"""Who asks the same at the same time shares a call, and no answer is older than the question."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from agent.engine.api.single_flight import SingleFlight
from agent.engine.docker.engine import DockerEngine
from agent.engine.errors import EngineTimeout, EngineUnavailable
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


@pytest.mark.slow
async def test_any_number_of_callers_have_two_calls_under_way_at_most(
    engine: DockerEngine, held: Held
) -> None:
    first = asyncio.ensure_future(engine.containers())
    await held.asked.acquire()

    many = [asyncio.ensure_future(engine.containers()) for _ in range(500)]
    await asyncio.sleep(0)
    held.release.release()
    held.release.release()

    assert await asyncio.gather(first, *many) == [[]] * 501
    assert held.lists == 2


async def test_a_caller_is_not_answered_by_a_call_that_was_sent_before_it_came(
    engine: DockerEngine, held: Held
) -> None:
    before = asyncio.ensure_future(engine.containers())
    await held.asked.acquire()
    later = asyncio.ensure_future(engine.containers())
    held.release.release()
    await before

    await held.asked.acquire()

    assert not later.done()
    held.release.release()
    assert await later == []


async def test_what_differs_in_its_filter_is_not_shared(engine: DockerEngine, held: Held) -> None:
    asking = [asyncio.ensure_future(engine.containers(label=label)) for label in ("a", "b")]

    for _ in asking:
        await held.asked.acquire()
        held.release.release()

    assert await asyncio.gather(*asking) == [[], []]


async def test_a_list_that_somebody_changes_is_nobody_elses(
    engine: DockerEngine, held: Held
) -> None:
    held.release.release()

    one, other = await asyncio.gather(engine.containers(), engine.containers())

    assert held.lists == 1
    assert one is not other


async def test_one_who_leaves_takes_the_answer_from_nobody(
    engine: DockerEngine, held: Held
) -> None:
    leaving, staying = (asyncio.ensure_future(engine.containers()) for _ in range(2))
    await held.asked.acquire()

    leaving.cancel()
    held.release.release()

    assert await staying == []
    assert held.lists == 1


async def test_a_call_for_which_all_have_left_is_not_joined(
    engine: DockerEngine, held: Held
) -> None:
    sent = asyncio.ensure_future(engine.containers())
    await held.asked.acquire()
    waiting = asyncio.ensure_future(engine.containers())
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait({waiting})
    late = asyncio.ensure_future(engine.containers())
    held.release.release()
    held.release.release()

    assert await sent == await late == []


async def test_each_caller_waits_for_as_long_as_it_has_time(
    engine: DockerEngine, held: Held
) -> None:
    patient = asyncio.ensure_future(engine.containers())
    await held.asked.acquire()

    with pytest.raises(EngineTimeout):
        await engine.containers(seconds=0.05)

    held.release.release()
    assert await patient == []


@pytest.mark.slow
async def test_the_time_of_a_call_begins_when_it_is_sent(fake: FakeDockerApi) -> None:
    engine, asked = DockerEngine(url=fake.url, timeout_seconds=4), asyncio.Event()

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


async def test_who_is_in_a_hurry_waits_for_none_of_the_others(
    engine: DockerEngine, held: Held
) -> None:
    others = [asyncio.ensure_future(engine.containers()) for _ in range(10)]
    await held.asked.acquire()

    hurried = asyncio.ensure_future(engine.containers(seconds=20))

    await held.asked.acquire()  # and the first call has no answer yet
    for _ in range(2):
        held.release.release()
    assert await hurried == []
    await asyncio.gather(*others)


@pytest.mark.slow
async def test_of_hundreds_who_share_an_answer_one_goes_on_in_a_round_of_the_event_loop() -> None:
    flights, most, before = SingleFlight(), 0, 0
    gone_on = list[int]()

    async def answer() -> int:
        return 7

    async def ask() -> None:
        gone_on.append(await flights.share("key", answer))

    asking = [asyncio.ensure_future(ask()) for _ in range(300)]
    while not all(each.done() for each in asking):
        await asyncio.sleep(0)
        most, before = max(most, len(gone_on) - before), len(gone_on)

    assert (most, gone_on) == (1, [7] * 300)


async def test_all_who_share_a_call_hear_why_it_failed(
    fake: FakeDockerApi, engine: DockerEngine
) -> None:
    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    fake.handle(LIST, drop)

    outcomes = await asyncio.gather(
        *(engine.containers() for _ in range(10)), return_exceptions=True
    )

    assert {type(outcome) for outcome in outcomes} == {EngineUnavailable}


@pytest.mark.parametrize("seed", range(20))
async def test_no_answer_is_older_than_its_question_however_calls_come_and_end(seed: int) -> None:
    chance, flights, under_way = random.Random(seed), SingleFlight(), 0
    clock = iter(range(1_000_000))

    async def call() -> int:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        sent = next(clock)  # the engine may look at any moment from here on
        try:
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
        finally:
            under_way -= 1
        return sent

    async def ask() -> None:
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        asked = next(clock)
        assert await flights.share("key", call) > asked

    asking = [asyncio.ensure_future(ask()) for _ in range(60)]
    while not all(each.done() for each in asking):
        await asyncio.sleep(0)
        if chance.random() < 0.5:
            chance.choice(asking).cancel()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
    await _until_idle(lambda: flights.share("key", call))


async def _until_idle(ask: Callable[[], Awaitable[int]]) -> None:
    """Assert that a call is still answered."""
    async with asyncio.timeout(30):
        await ask()
