"""When things are done that are done again and again."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import SystemRandom

from apscheduler.schedulers.asyncio import AsyncIOScheduler


@contextmanager
def scheduled(ticks: Iterable[Callable[[], Awaitable[None]]], *, seconds: float) -> Iterator[None]:
    """Call each coroutine function every so many seconds, while the context is open.

    Each has a phase of its own that is drawn once: jitter would add up to a longer period. A call
    that comes late is made all the same, and several late ones become one. The schedule goes by
    the wall clock.
    """
    scheduler = AsyncIOScheduler(
        timezone=UTC,
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
    )
    for tick in ticks:
        first = datetime.now(UTC) + timedelta(seconds=SystemRandom().uniform(0, seconds))
        scheduler.add_job(tick, "interval", seconds=seconds, start_date=first)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
