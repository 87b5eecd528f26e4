"""When things are done that are done again and again."""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

# A timer that goes off by so much of a period too early has not gone off once more.
EARLY_TOLERANCE = 0.01
RANDOM = SystemRandom()


class MonotonicTrigger(BaseTrigger):
    """Every so many seconds by a monotonic clock, the first time at ``first`` on it.

    APScheduler's own interval counts on from each call on the wall clock, one by one: it goes
    through millions of them, for minutes, once a clock that stood at 1970 is set right.
    """

    def __init__(self, *, seconds: float, first: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._first = first
        self._monotonic = monotonic

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        """Give the next time after this moment, whatever was before."""
        passed = self._monotonic() - self._first
        beat = max(0, math.floor(passed / self._seconds + EARLY_TOLERANCE) + 1)
        return now + timedelta(seconds=beat * self._seconds - passed)


@contextmanager
def scheduled(
    ticks: Iterable[Callable[[], Awaitable[None]]],
    *,
    seconds: float,
    random: Random = RANDOM,
) -> Iterator[None]:
    """Call each coroutine function every so many seconds, while the context is open.

    Each has a phase of its own that is drawn once: jitter would add up to a longer period. A call
    that comes late is made all the same, and several late ones become one. While the wall clock
    is behind where it was, after it was set back, nothing is called.
    """
    scheduler = AsyncIOScheduler(
        timezone=UTC,
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
    )
    for tick in ticks:
        first = time.monotonic() + random.uniform(0, seconds)
        beat = MonotonicTrigger(seconds=seconds, first=first, monotonic=time.monotonic)
        scheduler.add_job(tick, beat)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
