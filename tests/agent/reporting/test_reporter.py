"""When a reporter sends, and the schedule that requests it."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from agent.reporting.reporter import MonotonicTrigger, Reporters, scheduled
from clients.errors import Busy, HostnameTaken, WrongKey
from clients.message import Heartbeat
from runtime.pauses import Backoff
from tests.support.agent.reporter_harness import UNREACHABLE, URL, ReporterHarness
from tests.support.machine.clocks import in_virtual_time


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


@in_virtual_time
async def test_it_reports_at_once(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)

    assert registry.taken == [("web-1", Heartbeat(labels=["service:web"], kv={}))]
    assert harness.events() == [("registered", "")]


@in_virtual_time
async def test_a_change_that_waits_when_the_agent_ends_is_reported(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)
    reporters = Reporters()
    async with harness.registry as registry:
        reporters.start([harness.reporter])
        await registry.until(lambda: len(registry.taken) == 1)
        harness.label = "service:db"
        reporters.request_report()
        await asyncio.sleep(0.01)  # the reporter waits whether more changes come
        assert len(registry.taken) == 1

        await reporters.stop()

    assert [heartbeat.labels for _, heartbeat in registry.taken] == [
        ["service:web"],
        ["service:db"],
    ]


@in_virtual_time
async def test_an_agent_without_a_change_ends_without_another_report(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)
    reporters = await harness.started()
    await asyncio.sleep(0.01)

    await reporters.stop()

    assert harness.registry.reports == 1


@in_virtual_time
async def test_a_registry_that_is_silent_delays_the_end_by_three_seconds(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)
    reporters = await harness.started()
    harness.registry.silent = True
    reporters.request_report()
    clock = asyncio.get_running_loop()
    started = clock.time()

    await reporters.stop()

    assert clock.time() - started == pytest.approx(3)
    assert harness.statuses[URL].state == "slow"


class FrozenEngineHarness(ReporterHarness):
    """A reporter whose engine answers no more; without a limit it is waited for five seconds."""

    frozen = False

    async def heartbeat(self, within_seconds: float | None = None) -> Heartbeat:
        """Wait for the engine."""
        if self.frozen:
            await asyncio.sleep(5 if within_seconds is None else within_seconds)
        return await super().heartbeat(within_seconds)


@in_virtual_time
async def test_an_engine_that_is_frozen_leaves_the_last_report_time_to_be_sent(
    tmp_path: Path,
) -> None:
    harness = FrozenEngineHarness(tmp_path)
    reporters = await harness.started()
    harness.frozen = True
    reporters.request_report()
    clock = asyncio.get_running_loop()
    started = clock.time()

    await reporters.stop()

    assert clock.time() - started == pytest.approx(2.5)
    assert len(harness.registry.taken) == 2


@in_virtual_time
async def test_a_burst_of_requests_is_one_report_of_its_end(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running(taken=1) as registry:
        for number in range(10):
            harness.label = f"n:{number}"
            harness.reporter.request_report()
            await asyncio.sleep(0.01)
        await registry.until(lambda: len(registry.taken) == 2)
        await asyncio.sleep(600)

    assert [heartbeat.labels for _, heartbeat in registry.taken] == [["service:web"], ["n:9"]]


@pytest.mark.slow
@in_virtual_time
async def test_endless_requests_delay_no_report_beyond_a_second(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running(taken=1) as registry:
        for _ in range(300):
            harness.reporter.request_report()
            await asyncio.sleep(0.01)

    assert len(registry.taken) >= 4


@in_virtual_time
async def test_without_any_request_it_reports_at_its_longest_silence(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path, max_silence_seconds=10)

    async with harness.running() as registry:
        await asyncio.sleep(35)

    assert len(registry.taken) == 4


@in_virtual_time
async def test_while_the_registry_is_away_nothing_is_queued_and_one_line_is_logged(
    tmp_path: Path,
) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running(taken=1) as registry:
        registry.failure = UNREACHABLE
        before = registry.reports
        for number in range(50):
            harness.label = f"n:{number}"
            harness.reporter.request_report()
        await registry.until(lambda: registry.reports >= before + 30)
        harness.reporter.request_report()
        registry.failure = Busy("503: starting")
        await registry.until(lambda: registry.reports >= before + 60)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 2)
        await asyncio.sleep(600)  # everything was in that one

    assert registry.taken[1][1].labels == ["n:49"]
    assert harness.events() == [
        ("registered", ""),
        ("heartbeat failed", "unreachable"),
        ("registry back", ""),
    ]
    assert harness.count("unreachable") >= 30
    assert harness.count("busy") >= 30
    assert harness.count("taken") == 2


@in_virtual_time
async def test_a_failure_that_needs_an_operator_is_logged_once_in_an_outage(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        for failure in (
            UNREACHABLE,
            WrongKey("401: no"),
            UNREACHABLE,
            HostnameTaken("409: no"),
            WrongKey("401"),
        ):
            registry.failure, registry.reports = failure, 0
            await registry.until(lambda: registry.reports >= 3)

    assert harness.events() == [
        ("heartbeat failed", "unreachable"),
        ("heartbeat failed", "wrong_key"),
        ("heartbeat failed", "clone_rejected"),
    ]
    assert harness.statuses[URL].state == "wrong_key"
    assert harness.statuses[URL].reason == "401"
    assert harness.statuses[URL].taken_at is None


class ZeroRandom(Random):
    """Draws zero, and notes the upper bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.bounds.append(b)
        return a


@in_virtual_time
async def test_after_a_heartbeat_that_was_taken_the_pauses_begin_anew(tmp_path: Path) -> None:
    drawn = ZeroRandom()
    harness = ReporterHarness(tmp_path, backoff=Backoff(max_seconds=30, random=drawn))

    async with harness.running() as registry:
        registry.failure = UNREACHABLE
        await registry.until(lambda: len(drawn.bounds) >= 4)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 1)
        before = len(drawn.bounds)
        registry.failure = UNREACHABLE
        harness.reporter.request_report()
        await registry.until(lambda: len(drawn.bounds) > before)

    assert drawn.bounds[:4] == [1, 4, 16, 30]
    assert drawn.bounds[before] == 1


@in_virtual_time
async def test_a_defect_ends_one_heartbeat_and_not_the_roll_call(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        registry.failure = ZeroDivisionError("division by zero")
        await registry.until(lambda: registry.reports >= 5)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 1)

    assert harness.events() == [("heartbeat failed", "defect"), ("registry back", "")]


@in_virtual_time
async def test_state_that_cannot_be_used_for_a_while_does_not_end_the_roll_call(
    tmp_path: Path,
) -> None:
    (tmp_path / "presence.lock").mkdir()
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await harness.until_attempt_ended()
        (tmp_path / "presence.lock").rmdir()
        await registry.until(lambda: len(registry.taken) == 1)

    assert harness.events() == [("heartbeat failed", "defect"), ("registry back", "")]


@in_virtual_time
async def test_the_length_of_an_outage_is_logged_whatever_the_wall_clock_was_set_to(
    tmp_path: Path,
) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running(taken=1) as registry:
        registry.failure = UNREACHABLE
        harness.reporter.request_report()
        await registry.until(lambda: harness.count("unreachable") >= 1)
        harness.wall += 86_400
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 2)

    back = harness.lines.entries[-1]
    assert back["event"] == "registry back"
    assert back["away_seconds"] < 60


@pytest.mark.slow
@in_virtual_time
async def test_a_deregistered_host_sends_no_heartbeat_until_it_joins_again(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path, max_silence_seconds=1)

    async with harness.running(taken=2) as registry:
        assert harness.deregistration.begin(within_seconds=30)
        reports = registry.reports
        await asyncio.sleep(600)
        assert registry.reports == reports
        harness.deregistration.clear()
        await registry.until(lambda: registry.reports > reports)

    assert [event for event, _ in harness.events()].count(
        "deregistered: no heartbeats until the agent is restarted"
    ) == 1
