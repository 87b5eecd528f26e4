"""Work that is shared: nobody gets a value that was begun before it was asked for."""

import asyncio

import pytest

from runtime.share import SharedWork


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
    shared, counter = SharedWork[str, int](), Counter()
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
    shared, counter = SharedWork[str, int](), Counter()
    tasks = [asyncio.create_task(shared.get(key, counter.make)) for key in "ab"]
    await turns()
    assert counter.begun == 2
    counter.may_end.set()
    assert sorted(await asyncio.gather(*tasks)) == [1, 2]


async def test_an_error_reaches_all_who_share_it_and_the_next_tries_again() -> None:
    shared = SharedWork[str, int]()

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
    shared, counter = SharedWork[str, int](), Counter()
    leaving, staying = [asyncio.create_task(shared.get("key", counter.make)) for _ in range(2)]
    await turns()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    counter.may_end.set()
    assert await staying == 1
