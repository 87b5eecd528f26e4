import asyncio
from pathlib import Path
from random import Random

from agent.reporting.backoff import Backoff
from registry.client.client import Busy, CloneRefused, WrongKey
from registry.message import Heartbeat
from tests.support.agent.reporter_harness import UNREACHABLE, ReporterHarness


async def test_it_reports_at_once(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)

    assert registry.taken == [("web-1", Heartbeat(labels=["service:web"], kv={}))]
    assert harness.events() == [("registered", "")]


async def test_a_call_is_a_report_of_what_is_true_then(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        harness.label = "service:db"
        harness.reporter.request_report()
        await registry.until(lambda: len(registry.taken) == 2)

    assert registry.taken[1][1].labels == ["service:db"]


async def test_a_burst_of_calls_is_one_report_of_its_end(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        for number in range(10):
            harness.label = f"n:{number}"
            harness.reporter.request_report()
            await asyncio.sleep(0.01)
        await registry.until(lambda: len(registry.taken) == 2)
        await asyncio.sleep(0.3)

    assert [heartbeat.labels for _, heartbeat in registry.taken] == [["service:web"], ["n:9"]]


async def test_calls_without_end_hold_no_report_back(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        while len(registry.taken) < 3:
            harness.reporter.request_report()
            await asyncio.sleep(0.01)

    assert len(registry.taken) == 3


async def test_without_any_call_it_reports_by_the_monotonic_clock(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path, interval=-0.9)  # with the second of grace: every 0.1 s

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 3)


async def test_while_the_registry_is_away_nothing_is_queued_and_one_line_is_logged(
    tmp_path: Path,
) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
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
        await asyncio.sleep(0.3)  # it said all in one

    assert registry.taken[1][1].labels == ["n:49"]
    assert harness.events() == [
        ("registered", ""),
        ("heartbeat not taken", "unreachable"),
        ("registry back", ""),
    ]
    assert harness.count("unreachable") >= 30
    assert harness.count("busy") >= 30
    assert harness.count("taken") == 2


async def test_a_reason_to_act_on_is_told_once_in_an_outage(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        for failure in (
            UNREACHABLE,
            WrongKey("401: no"),
            UNREACHABLE,
            CloneRefused("409: no"),
            WrongKey("401"),
        ):
            registry.failure, registry.reports = failure, 0
            await registry.until(lambda: registry.reports >= 3)

    assert harness.events() == [
        ("heartbeat not taken", "unreachable"),
        ("heartbeat not taken", "wrong_key"),
        ("heartbeat not taken", "clone_refused"),
    ]
    assert harness.recorder.registry_status.state == "wrong_key"
    assert harness.recorder.registry_status.reason == "401"
    assert harness.recorder.registry_status.taken_at is None


async def test_a_pause_that_the_registry_asks_for_is_kept(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        registry.failure = Busy("503: starting", retry_after_seconds=3600)
        await registry.until(lambda: registry.reports == 1)
        registry.failure = None
        harness.reporter.request_report()
        await asyncio.sleep(0.3)

    assert registry.reports == 1


class ZeroRandom(Random):
    """Draws zero, and notes what it might have drawn at most."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.bounds.append(b)
        return a


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


async def test_a_defect_ends_one_heartbeat_and_not_the_roll_call(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        registry.failure = ZeroDivisionError("division by zero")
        await registry.until(lambda: registry.reports >= 5)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 1)

    assert harness.events() == [("heartbeat not taken", "defect"), ("registry back", "")]


async def test_state_that_cannot_be_used_for_a_while_does_not_end_the_roll_call(
    tmp_path: Path,
) -> None:
    (tmp_path / "presence.lock").mkdir()
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await harness.until_attempt_ended()
        (tmp_path / "presence.lock").rmdir()
        await registry.until(lambda: len(registry.taken) == 1)

    assert harness.events() == [("heartbeat not taken", "defect"), ("registry back", "")]


async def test_how_long_a_registry_was_away_is_told_whatever_the_clock_was_set_to(
    tmp_path: Path,
) -> None:
    harness = ReporterHarness(tmp_path)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        registry.failure = UNREACHABLE
        harness.reporter.request_report()
        await registry.until(lambda: harness.count("unreachable") >= 1)
        harness.wall += 86_400
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 2)

    back = harness.lines.entries[-1]
    assert back["event"] == "registry back"
    assert back["away_seconds"] < 60


async def test_a_host_that_was_taken_out_is_silent_until_it_joins_again(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path, interval=-0.9)

    async with harness.running() as registry:
        await registry.until(lambda: len(registry.taken) == 2)
        assert harness.deregistration.begin(within_seconds=30)
        reports = registry.reports
        await asyncio.sleep(0.4)
        assert registry.reports == reports
        harness.deregistration.clear()
        await registry.until(lambda: registry.reports > reports)

    assert [event for event, _ in harness.events()].count(
        "taken out by `rollcall-agent deregister`: silent until restarted"
    ) == 1
