import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger, LogCapture

from agent.backoff import Backoff
from agent.identity import Identity
from agent.presence import Presence
from agent.reporter import Reporter
from agent.standing import HeartbeatMetrics, Ledger
from registry.client import Busy, CloneRefused, Forbidden, Unreachable, WrongKey
from registry.heartbeat import Heartbeat
from tests.agent.fake_registry import FakeRegistry

URL = "http://registry:7655"
AWAY = Unreachable("Connection refused")


class Bench:
    """A reporter with its surroundings; ``label`` is what the host says."""

    def __init__(self, folder: Path, *, hostname: str = "web-1", interval: float = 3600) -> None:
        self.registry = FakeRegistry()
        self.label = "service:web"
        self.key = "rk1.web-1.secret"
        self.builds = 0
        self.wall = 1_000_000.0
        self.identity = Identity(directory=folder, machine=None)
        self.presence = Presence(directory=folder)
        self.metrics = CollectorRegistry()
        self.lines = LogCapture()
        log = structlog.wrap_logger(CapturingLogger(), processors=[self.lines])
        self.ledger = Ledger(
            url=URL,
            metrics=HeartbeatMetrics(self.metrics),
            clock=lambda: self.wall,
            monotonic=asyncio.get_running_loop().time,
            changed=lambda: None,
            log=log,
        )
        self.reporter = Reporter(
            url=URL,
            registry=self.registry,
            hostname=hostname,
            heartbeat=self.heartbeat,
            key=lambda: self.key,
            interval_seconds=interval,
            backoff=Backoff(longest_seconds=0.01, random=Random(1)),
            identity=self.identity,
            presence=self.presence,
            ledger=self.ledger,
            monotonic=asyncio.get_running_loop().time,
            log=log,
        )

    async def heartbeat(self) -> Heartbeat:
        """Give what the host says."""
        self.builds += 1
        return Heartbeat(labels=[self.label], kv={})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeRegistry]:
        """Let the reporter run; give its registry."""
        task = asyncio.create_task(self.reporter.run())
        try:
            yield self.registry
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def count(self, outcome: str) -> float:
        """Give how often heartbeats had this outcome."""
        labels = {"registry": URL, "outcome": outcome}
        return self.metrics.get_sample_value("rollcall_agent_heartbeats_total", labels) or 0

    def events(self) -> list[tuple[str, str]]:
        """Give the log, without what is beside the words."""
        return [(line["event"], line.get("kind", "")) for line in self.lines.entries]


async def test_it_reports_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)

    assert registry.taken == [("web-1", Heartbeat(labels=["service:web"], kv={}))]
    assert bench.events() == [("registered", "")]


async def test_a_call_is_a_report_of_what_is_true_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        bench.label = "service:db"
        bench.reporter.call()
        await registry.until(lambda: len(registry.taken) == 2)

    assert registry.taken[1][1].labels == ["service:db"]


async def test_a_burst_of_calls_is_one_report_of_its_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        for number in range(10):
            bench.label = f"n:{number}"
            bench.reporter.call()
            await asyncio.sleep(0.01)
        await registry.until(lambda: len(registry.taken) == 2)
        await asyncio.sleep(0.3)

    assert [heartbeat.labels for _, heartbeat in registry.taken] == [["service:web"], ["n:9"]]


async def test_calls_without_end_hold_no_report_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        while len(registry.taken) < 3:
            bench.reporter.call()
            await asyncio.sleep(0.01)

    assert len(registry.taken) == 3


async def test_without_any_call_it_reports_by_the_monotonic_clock(tmp_path: Path) -> None:
    bench = Bench(tmp_path, interval=-0.9)  # with the second of grace: every 0.1 s

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 3)


async def test_while_the_registry_is_away_nothing_is_queued_and_one_line_is_logged(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        registry.failure = AWAY
        before = registry.reports
        for number in range(50):
            bench.label = f"n:{number}"
            bench.reporter.call()
        await registry.until(lambda: registry.reports >= before + 30)
        registry.failure = Busy("503: starting")
        await registry.until(lambda: registry.reports >= before + 60)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 2)

    assert registry.taken[1][1].labels == ["n:49"]
    assert bench.events() == [
        ("registered", ""),
        ("heartbeat not taken", "unreachable"),
        ("registry back", ""),
    ]
    assert bench.count("unreachable") >= 30
    assert bench.count("busy") >= 30
    assert bench.count("taken") == 2


async def test_a_reason_to_act_on_is_told_once_in_an_outage(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        for failure in (AWAY, WrongKey("401: no"), AWAY, CloneRefused("409: no"), WrongKey("401")):
            registry.failure, registry.reports = failure, 0
            await registry.until(lambda: registry.reports >= 3)

    assert bench.events() == [
        ("heartbeat not taken", "unreachable"),
        ("heartbeat not taken", "wrong_key"),
        ("heartbeat not taken", "clone_refused"),
    ]
    assert bench.ledger.standing.state == "wrong_key"
    assert bench.ledger.standing.reason == "401"
    assert bench.ledger.standing.taken_at is None


async def test_a_pause_that_the_registry_asks_for_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        registry.failure = Busy("503: starting", retry_after_seconds=3600)
        await registry.until(lambda: registry.reports == 1)
        registry.failure = None
        bench.reporter.call()
        await asyncio.sleep(0.3)

    assert registry.reports == 1


async def test_a_defect_ends_one_heartbeat_and_not_the_roll_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        registry.failure = ZeroDivisionError("division by zero")
        await registry.until(lambda: registry.reports >= 5)
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 1)

    assert bench.events() == [("heartbeat not taken", "defect"), ("registry back", "")]


async def test_state_that_cannot_be_used_for_a_while_does_not_end_the_roll_call(
    tmp_path: Path,
) -> None:
    (tmp_path / "presence.lock").mkdir()
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        while bench.count("defect") < 3:
            await asyncio.sleep(0.01)
        (tmp_path / "presence.lock").rmdir()
        await registry.until(lambda: len(registry.taken) == 1)

    assert bench.events() == [("heartbeat not taken", "defect"), ("registry back", "")]


async def test_a_defect_with_the_old_name_does_not_end_the_roll_call(tmp_path: Path) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    bench = Bench(tmp_path)
    bench.registry.forget_failure = ZeroDivisionError("division by zero")

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 3)
        bench.registry.forget_failure = None
        await registry.until(lambda: registry.forgotten != [])


async def test_how_long_a_registry_was_away_is_told_whatever_the_clock_was_set_to(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
        registry.failure = AWAY
        bench.reporter.call()
        await registry.until(lambda: bench.count("unreachable") >= 1)
        bench.wall += 86_400
        registry.failure = None
        await registry.until(lambda: len(registry.taken) == 2)

    back = bench.lines.entries[-1]
    assert back["event"] == "registry back"
    assert back["away_seconds"] < 60


async def test_a_renamed_host_takes_its_old_name_out_with_the_old_key(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
    renamed = Bench(tmp_path, hostname="web-2")
    renamed.key = "rk1.web-2.secret"

    async with renamed.running() as registry:
        await registry.until(lambda: len(registry.forgotten) == 1)

    assert registry.taken[0][0] == "web-2"
    assert registry.forgotten == [("web-1", renamed.identity.id, "rk1.web-1.secret")]
    assert Identity(directory=tmp_path, machine=None).other_names(URL, "web-2") == []


async def test_the_old_name_stays_until_the_new_one_is_taken(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
    renamed = Bench(tmp_path, hostname="web-2")

    async with renamed.running() as registry:
        registry.failure = AWAY
        await registry.until(lambda: registry.reports >= 5)
        assert registry.forgotten == []
        registry.failure = None
        await registry.until(lambda: len(registry.forgotten) == 1)


@pytest.mark.parametrize("failure", [CloneRefused("409: another's by now"), None])
async def test_an_old_name_that_is_no_longer_this_hosts_is_struck_off(
    tmp_path: Path, failure: CloneRefused | None
) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    bench = Bench(tmp_path)
    bench.registry.unknown.add("web-0")
    bench.registry.forget_failure = failure

    async with bench.running() as registry:
        await registry.until(lambda: bench.identity.other_names(URL, "web-1") == [])

    assert registry.forgotten == []


async def test_an_old_name_that_may_not_be_taken_out_is_told_once_and_tried_at_the_next_start(
    tmp_path: Path,
) -> None:
    Identity(directory=tmp_path, machine=None).claim(URL, "web-0", "k" * 20)
    bench = Bench(tmp_path, interval=-0.9)
    bench.registry.forget_failure = Forbidden("403: not yours")

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 3)

    assert bench.events() == [("registered", ""), ("old name not taken out", "")]
    assert bench.identity.other_names(URL, "web-1") == ["web-0"]


async def test_a_host_that_was_taken_out_is_silent_until_it_joins_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, interval=-0.9)

    async with bench.running() as registry:
        await registry.until(lambda: len(registry.taken) == 2)
        bench.presence.leave()
        reports = registry.reports
        await asyncio.sleep(0.4)
        assert registry.reports == reports
        bench.presence.join()
        await registry.until(lambda: registry.reports > reports)

    assert [event for event, _ in bench.events()].count(
        "taken out by `rollcall-agent deregister`: silent until restarted"
    ) == 1


async def test_leaving_waits_for_what_is_being_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with bench.presence.speaking() as may_speak:
        assert may_speak
        leaving = asyncio.create_task(asyncio.to_thread(Presence(directory=tmp_path).leave))
        await asyncio.sleep(0.2)
        assert not leaving.done()
        with bench.presence.speaking() as may_speak_now:
            assert not may_speak_now
    await leaving
