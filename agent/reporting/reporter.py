"""Sends this host's heartbeats to a group of registries, as long as the agent runs."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from agent.reporting.failover import Failover
from agent.reporting.heartbeat import BuildHeartbeat
from agent.state.lock import Deregistration
from runtime.pauses import Backoff

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


@dataclass(frozen=True, kw_only=True)
class ReportTiming:
    """When a reporter sends a heartbeat. All times are in seconds of the event loop's clock.

    After a request it waits until no other one came for ``debounce_seconds``, at most for
    ``max_debounce_seconds``, so that a burst of changes is one heartbeat, within a second. Without
    a request it sends one every ``max_silence_seconds``. After a failure it waits for ``backoff``.
    The last report, when the agent ends, takes ``max_final_seconds`` at most, in which each
    registry of the group can be asked.
    """

    max_silence_seconds: float
    backoff: Backoff
    debounce_seconds: float = 0.15
    max_debounce_seconds: float = 0.6
    max_final_seconds: float = 3.0


class Reporter:
    """Reports to one group of registries, independently of the other groups.

    Heartbeats are never queued: each one is built when it is sent. While all registries of the
    group fail, only the back-off decides when the next attempt is made.
    """

    def __init__(
        self,
        *,
        failover: Failover,
        heartbeat: BuildHeartbeat,
        deregistration: Deregistration,
        timing: ReportTiming,
    ) -> None:
        self._failover = failover
        self._heartbeat = heartbeat
        self._deregistration = deregistration
        self._timing = timing
        self._report_requested = asyncio.Event()
        self._changes = 0
        self._reported_changes = 0

    def request_report(self) -> None:
        """Request a heartbeat soon, because something has changed."""
        self._changes += 1
        self._report_requested.set()

    async def tick(self) -> None:
        """Request a heartbeat, which is due by the schedule."""
        self._report_requested.set()

    async def run(self) -> None:
        """Report at once and then again and again, until cancelled."""
        while True:
            try:
                pause = await self._report()
            except Exception as error:  # whatever it is, the next heartbeat may succeed
                pause = self._timing.backoff.pause()
                with suppress(Exception):  # not even a failing log ends the loop
                    self._failover.recorder.broken(error)
            if pause is None:
                await self._next_request()
            else:
                await asyncio.sleep(pause)

    async def finish(self) -> None:
        """Report once more if a change was not reported yet; call this when ``run`` has ended."""
        if self._changes == self._reported_changes:
            return
        try:
            await self._report(within_seconds=self._timing.max_final_seconds)
        except Exception as error:  # it must not keep the other parts from ending
            self._failover.recorder.broken(error)

    async def _next_request(self) -> None:
        clock = asyncio.get_running_loop()
        await self._wait_for_request(self._timing.max_silence_seconds)
        end = clock.time() + self._timing.max_debounce_seconds
        while self._report_requested.is_set() and clock.time() < end:
            self._report_requested.clear()
            await self._wait_for_request(self._timing.debounce_seconds)

    async def _wait_for_request(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._report_requested.wait()

    async def _report(self, *, within_seconds: float | None = None) -> float | None:
        """Report once; return the seconds until the next attempt if this one failed."""
        self._report_requested.clear()
        with self._deregistration.permit() as permitted:
            if not permitted:
                self._failover.recorder.deregistered()
                return None
            changes = self._changes
            wait = await self._failover.report(
                self._heartbeat,
                is_deregistered=self._deregistration.is_deregistered,
                within_seconds=within_seconds,
            )
            if wait is not None:
                return self._timing.backoff.pause(wait)
            self._reported_changes = changes
            self._timing.backoff.reset()
        return None


class Reporters:
    """All reporters of this host. Before ``start`` there are none, and requests have no effect."""

    def __init__(self) -> None:
        self._reporters: Sequence[Reporter] = ()
        self._tasks: list[asyncio.Task[None]] = []

    def request_report(self) -> None:
        """Request a heartbeat from every reporter, because something has changed."""
        for reporter in self._reporters:
            reporter.request_report()

    def start(self, reporters: Sequence[Reporter]) -> None:
        """Run the reporters until ``stop``."""
        self._reporters = reporters
        self._tasks = [asyncio.create_task(reporter.run()) for reporter in reporters]

    async def stop(self) -> None:
        """End the reporters; each that has a change left to report sends a last heartbeat."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(reporter.finish() for reporter in self._reporters))
