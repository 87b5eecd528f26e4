import asyncio
import time

from agent.schedule import scheduled


class Ticks:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = asyncio.Event()

    async def tick(self) -> None:
        """Count."""
        self.count += 1
        self._happened.set()

    async def until(self, count: int) -> None:
        """Wait for so many."""
        async with asyncio.timeout(30):
            while self.count < count:
                self._happened.clear()
                await self._happened.wait()


async def test_each_is_called_again_and_again() -> None:
    first, second = Ticks(), Ticks()

    with scheduled([first.tick, second.tick], seconds=0.05):
        await first.until(5)
        await second.until(5)


async def test_a_call_that_is_late_is_made_all_the_same_and_late_ones_become_one() -> None:
    ticks = Ticks()

    with scheduled([ticks.tick], seconds=0.2):
        await ticks.until(1)
        end = time.monotonic() + 1.5  # longer than the second after which calls are dropped else
        while time.monotonic() < end:
            pass
        before = ticks.count
        await ticks.until(before + 1)

    assert before == 1
    assert ticks.count == 2


async def test_nothing_is_called_after_the_end() -> None:
    ticks = Ticks()
    with scheduled([ticks.tick], seconds=0.02):
        await ticks.until(1)
    count = ticks.count

    await asyncio.sleep(0.1)

    assert ticks.count <= count + 1
