"""Long work in slices: keys have them in turn, and what several keys wait for has those of all."""

import asyncio
from collections.abc import Iterator

import pytest

from registry.responses.slices import SLICE_SECONDS, TimeSlices
from registry.store.protocol import Row
from runtime.share import SingleFlight
from runtime.turns import WORKING_FOR
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import READER, SCRAPER, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

GREEDY = 20
LONG = 50


class Slices(TimeSlices):
    """Slices by a clock that stands still, so that each step of `work` takes a whole one."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(clock=self.clock)
        self.taken: list[str] = []

    def work(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            self.taken.append(name)
            self.clock.now += SLICE_SECONDS
            yield

    def start(self, key: str, count: int) -> asyncio.Task[None]:
        """Begin work for a key."""

        async def run() -> None:
            WORKING_FOR.set({key})
            await self.run(self.work(key, count))

        return asyncio.create_task(run())


async def test_many_requests_with_one_key_hold_up_another_key_as_one_does() -> None:
    slices = Slices()
    greedy = [slices.start("greedy", LONG) for _ in range(GREEDY)]
    await asyncio.sleep(0)

    await slices.start("other", LONG)

    assert slices.taken.count("greedy") <= LONG + 2
    await asyncio.gather(*greedy)


async def test_a_key_that_shares_work_does_not_wait_for_the_other_work_of_its_first_key() -> None:
    slices, shared = Slices(), SingleFlight[str, None]()

    async def ask(key: str) -> None:
        WORKING_FOR.set({key})
        await shared.get("targets", lambda: slices.run(slices.work("targets", LONG)))

    greedy = [slices.start("greedy", LONG) for _ in range(GREEDY)]
    first = asyncio.create_task(ask("greedy"))
    await asyncio.sleep(0)

    await asyncio.create_task(ask("other"))

    # What is being made is behind the others once. Then it goes on for both, and is made once more.
    assert slices.taken.count("greedy") <= GREEDY + 2 * LONG + 4
    await asyncio.gather(first, *greedy)


@pytest.mark.slow
async def test_many_searches_with_one_key_hold_up_targets_no_more_than_one_does() -> None:
    head = b'{"labels":["prometheus:shop"],"kv":{"version":"%b"}}' % (b"y" * 1000)
    rows = [Row(f"web-{number:04}", head, 1_700_000_000, "192.0.2.1") for number in range(1000)]
    async with in_process_registry(store=MemoryStore(rows), level="error") as registry:

        async def search(status: list[int], begun: asyncio.Event) -> None:
            while True:
                path = f"/nodes?prefix=zz{len(status)}&limit=1"
                status.append((await registry.ask("GET", path, key=READER)).status)
                if len(status) >= 2 * GREEDY:
                    begun.set()

        status: list[int] = []
        begun = asyncio.Event()
        tasks = [asyncio.create_task(search(status, begun)) for _ in range(GREEDY)]
        await begun.wait()
        before = len(status)
        found = await registry.ask("GET", "/prometheus/shop?format=http_sd", key=SCRAPER)
        answered = len(status) - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert (found.status, set(status)) == (200, {200})
    assert answered < 2 * GREEDY
