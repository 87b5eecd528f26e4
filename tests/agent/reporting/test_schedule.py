import asyncio
import time
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from agent.reporting.schedule import MonotonicTrigger, scheduled


class CallCounter:
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


def block(*, seconds: float) -> None:
    """Keep the event loop from running anything."""
    time.sleep(seconds)


@pytest.mark.slow
async def test_each_is_called_again_and_again() -> None:
    first, second = CallCounter(), CallCounter()

    with scheduled([first.tick, second.tick], seconds=0.05):
        await first.until(5)
        await second.until(5)


class FixedRandom(Random):
    """Returns phases in their order, and notes the bounds."""

    def __init__(self, *phases: float) -> None:
        super().__init__()
        self.bounds: list[tuple[float, float]] = []
        self._phases = list(phases)

    def uniform(self, a: float, b: float) -> float:
        self.bounds.append((a, b))
        return self._phases.pop(0)


@pytest.mark.slow
async def test_each_begins_at_a_phase_of_its_own_in_the_first_period() -> None:
    drawn, first, second = FixedRandom(0.5, 15), CallCounter(), CallCounter()

    with scheduled([first.tick, second.tick], seconds=20, random=drawn):
        await first.until(1)

    assert second.count == 0
    assert drawn.bounds == [(0, 20), (0, 20)]


@pytest.mark.slow
async def test_a_call_that_is_late_is_made_all_the_same_and_late_ones_become_one() -> None:
    ticks = CallCounter()

    with scheduled([ticks.tick], seconds=0.2):
        await ticks.until(1)
        block(seconds=1.5)  # APScheduler by default drops calls that are a second late
        before = ticks.count
        await ticks.until(before + 1)

    assert before == 1
    assert ticks.count == 2


@pytest.mark.slow
async def test_nothing_is_called_after_the_end() -> None:
    ended, other = CallCounter(), CallCounter()
    with scheduled([ended.tick], seconds=0.02):
        await ended.until(1)
    count = ended.count

    with scheduled([other.tick], seconds=0.02):
        await other.until(5)

    assert ended.count <= count + 1


@pytest.mark.parametrize("year", [2016, 2026, 2036])
@pytest.mark.parametrize("late_seconds", [0.0, 0.4, 29.0])
def test_the_next_time_is_a_period_after_the_last_whatever_the_wall_clock_says(
    year: int, late_seconds: float
) -> None:
    trigger = MonotonicTrigger(seconds=30, first=1012, monotonic=lambda: 1012 + late_seconds)
    now = datetime(year, 1, 1, tzinfo=UTC)

    following = trigger.get_next_fire_time(datetime(2026, 1, 1, tzinfo=UTC), now)

    assert (following - now).total_seconds() == pytest.approx(30 - late_seconds)


def test_the_first_time_is_at_its_phase_and_one_that_is_early_counts() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    before = MonotonicTrigger(seconds=30, first=1012, monotonic=lambda: 1000)
    assert before.get_next_fire_time(None, now) == now + timedelta(seconds=12)
    early = MonotonicTrigger(seconds=30, first=1012, monotonic=lambda: 1041.9)
    assert early.get_next_fire_time(now, now) == now + timedelta(seconds=30.1)
