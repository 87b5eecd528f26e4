"""Who asks the same at the same time shares a call, and no answer is older than the question."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from runtime.share import JoinedCalls, SingleFlight


class Counter:
    """Makes numbers; each is begun, and waits until the test lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def make(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_asks_while_one_is_made_shares_the_next() -> None:
    shared, counter = SingleFlight[str, int](), Counter()
    first = asyncio.create_task(shared.get("key", counter.make))
    await turns()
    later = [asyncio.create_task(shared.get("key", counter.make)) for _ in range(10)]
    await turns()
    assert counter.begun == 1
    counter.may_end.set()

    assert await first == 1
    assert [await task for task in later] == [2] * 10
    assert await shared.get("key", counter.make) == 3


async def test_other_keys_do_not_wait() -> None:
    shared, counter = SingleFlight[str, int](), Counter()
    tasks = [asyncio.create_task(shared.get(key, counter.make)) for key in "ab"]
    await turns()
    assert counter.begun == 2
    counter.may_end.set()
    assert sorted(await asyncio.gather(*tasks)) == [1, 2]


async def test_an_error_reaches_all_who_share_it_and_the_next_tries_again() -> None:
    shared = SingleFlight[str, int]()

    async def fail() -> int:
        raise KeyError("once")

    found = await asyncio.gather(
        shared.get("key", fail), shared.get("key", fail), return_exceptions=True
    )
    assert [type(error) for error in found] == [KeyError, KeyError]
    counter = Counter()
    counter.may_end.set()
    assert await shared.get("key", counter.make) == 1


async def test_one_who_leaves_does_not_take_the_value_from_the_others() -> None:
    shared, counter = SingleFlight[str, int](), Counter()
    leaving, staying = [asyncio.create_task(shared.get("key", counter.make)) for _ in range(2)]
    await turns()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    counter.may_end.set()
    assert await staying == 1


async def test_a_call_for_which_all_have_left_is_cancelled_and_not_joined() -> None:
    shared, counter = SingleFlight[str, int](), Counter()
    running = asyncio.create_task(shared.get("key", counter.make))
    await turns()
    waiting = asyncio.create_task(shared.get("key", counter.make))
    await turns()
    waiting.cancel()
    running.cancel()
    await asyncio.wait({waiting, running})

    counter.may_end.set()
    assert await shared.get("key", counter.make) == 2


@pytest.mark.slow
async def test_of_hundreds_who_share_an_answer_one_goes_on_in_a_round_of_the_event_loop() -> None:
    flights, most, before = SingleFlight[str, int](), 0, 0
    gone_on = list[int]()

    async def answer() -> int:
        return 7

    async def ask() -> None:
        gone_on.append(await flights.get("key", answer))

    asking = [asyncio.ensure_future(ask()) for _ in range(300)]
    while not all(each.done() for each in asking):
        await asyncio.sleep(0)
        most, before = max(most, len(gone_on) - before), len(gone_on)

    assert (most, gone_on) == (1, [7] * 300)


@pytest.mark.parametrize("seed", range(20))
async def test_no_answer_is_older_than_its_question_however_calls_come_and_end(seed: int) -> None:
    chance, flights, under_way = random.Random(seed), SingleFlight[str, int](), 0
    clock = iter(range(1_000_000))

    async def call() -> int:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        sent = next(clock)  # it may be answered at any moment from here on
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
        assert await flights.get("key", call) > asked

    asking = [asyncio.ensure_future(ask()) for _ in range(60)]
    while not all(each.done() for each in asking):
        await asyncio.sleep(0)
        if chance.random() < 0.5:
            chance.choice(asking).cancel()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
    await _until_idle(lambda: flights.get("key", call))


async def _until_idle(ask: Callable[[], Awaitable[int]]) -> None:
    """Assert that a call is still answered."""
    async with asyncio.timeout(30):
        await ask()


async def test_who_asks_while_a_joined_call_runs_waits_for_it_and_nobody_cancels_it() -> None:
    calls, begun = JoinedCalls[str, int](), list[asyncio.Future[int]]()

    def begin() -> asyncio.Future[int]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    asking = [asyncio.create_task(calls.get(key, begin)) for key in ("a", "b", "a", "a")]
    await turns()
    asking.pop().cancel()
    begun[0].set_result(1)
    begun[1].set_exception(OSError("unknown"))
    found = await asyncio.gather(*asking, return_exceptions=True)

    assert [found[0], type(found[1]), found[2]] == [1, OSError, 1]
    again = asyncio.create_task(calls.get("a", begin))
    await turns()
    begun[2].set_result(2)
    assert (await again, len(begun)) == (2, 3)
