"""Calls functions periodically, with APScheduler."""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

# A timer may fire early by this fraction of a period; the time that it was set for then counts
# as reached.
EARLY_TOLERANCE = 0.01
RANDOM = SystemRandom()


class MonotonicTrigger(BaseTrigger):
    """Fires every ``seconds`` of a monotonic clock, the first time at ``first``.

    APScheduler's own interval trigger counts from its last run on the wall clock, one interval at
    a time. After a clock that stood at 1970 is set, it counts through millions of them, for
    minutes.
    """

    def __init__(self, *, seconds: float, first: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._first = first
        self._monotonic = monotonic

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        """Return the next time after ``now``, whatever the previous one was."""
        passed = self._monotonic() - self._first
        periods = max(0, math.floor(passed / self._seconds + EARLY_TOLERANCE) + 1)
        return now + timedelta(seconds=periods * self._seconds - passed)


@contextmanager
def scheduled(
    ticks: Iterable[Callable[[], Awaitable[None]]],
    *,
    seconds: float,
    random: Random = RANDOM,
) -> Iterator[None]:
    """Call each coroutine function every ``seconds`` while the context is open.

    Each gets a random phase once; jitter in each period would make the period longer on average.
    A call that is late is still made, and several late calls become one. After the wall clock was
    set back, nothing is called until it has caught up.
    """
    scheduler = AsyncIOScheduler(
        timezone=UTC,
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
    )
    for tick in ticks:
        first = time.monotonic() + random.uniform(0, seconds)
        trigger = MonotonicTrigger(seconds=seconds, first=first, monotonic=time.monotonic)
        scheduler.add_job(tick, trigger)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
