"""Which registry of a group gets the heartbeats, and when."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from agent.reporting.failover import MAX_RETRY_AFTER_SECONDS
from agent.state.identity import Identity
from clients.errors import (
    BadCertificate,
    BadFile,
    Busy,
    CertificateRejected,
    HostnameTaken,
    NotARegistry,
    NotFound,
    NotPermitted,
    OverLimit,
    Redirected,
    RegistryError,
    Rejected,
    TooSlow,
    Unreachable,
    WrongKey,
)
from clients.message import Heartbeat
from runtime.pauses import Backoff
from tests.support.agent.reporter_harness import (
    UNREACHABLE,
    URLS,
    A,
    B,
    C,
    FakeRegistry,
    GroupHarness,
    ReporterHarness,
)
from tests.support.machine.clocks import in_virtual_time

LIST_SECONDS = 0.9


@in_virtual_time
async def test_the_heartbeat_is_built_again_for_each_registry(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path)
    first, second, _ = harness.registries.values()

    async with harness.running(taken=1):
        first.failure = UNREACHABLE
        before = harness.builds
        await harness.settle(second)

    assert harness.builds == before + 2


class BreakingHarness(GroupHarness):
    """A reporter whose second heartbeat cannot be built."""

    async def heartbeat(self, within_seconds: float | None) -> Heartbeat:
        """Fail at the second call."""
        heartbeat = await super().heartbeat(within_seconds)
        if self.builds == 2:
            raise ZeroDivisionError("division by zero")
        return heartbeat


@in_virtual_time
async def test_a_failure_is_recorded_though_the_heartbeat_for_the_next_registry_cannot_be_built(
    tmp_path: Path,
) -> None:
    harness = BreakingHarness(tmp_path)
    first, second, _ = harness.registries.values()
    first.failure = UNREACHABLE

    async with harness.running():
        await second.until(lambda: len(second.taken) == 1)

    assert harness.asked() == [2, 1, 0]
    assert harness.count("unreachable", A) == 2
    assert harness.events()[:2] == [
        ("heartbeat failed", "unreachable"),
        ("heartbeat failed", "defect"),
    ]


@in_virtual_time
async def test_at_the_end_of_the_agent_each_registry_that_is_asked_gets_a_share_of_the_time(
    tmp_path: Path,
) -> None:
    harness = GroupHarness(tmp_path)
    first, second, third = harness.registries.values()
    reporters = await harness.started()
    first.silent, second.failure = True, UNREACHABLE
    reporters.request_report()
    clock = asyncio.get_running_loop()
    began = clock.time()

    await reporters.stop()

    assert clock.time() - began == pytest.approx(1)
    assert len(third.taken) == 1
    assert [harness.statuses[url].state for url in URLS] == ["slow", "unreachable", "taken"]


class SlowEngineHarness(GroupHarness):
    """A reporter whose engine is slow: unreachable from the first limit on that it misses."""

    slow = False
    state = "running"

    async def heartbeat(self, within_seconds: float | None) -> Heartbeat:
        """Return the state of the engine."""
        if self.slow and within_seconds is not None:
            await asyncio.sleep(min(within_seconds, LIST_SECONDS))
            if within_seconds < LIST_SECONDS:
                self.state = "unreachable"
        heartbeat = await super().heartbeat(within_seconds)
        return Heartbeat(labels=heartbeat.labels, kv={"docker.state": self.state})


@in_virtual_time
async def test_an_engine_that_is_slow_at_the_end_of_the_agent_is_not_unreachable(
    tmp_path: Path,
) -> None:
    harness = SlowEngineHarness(tmp_path, urls=URLS[:2])
    first, second = harness.registries.values()
    reporters = await harness.started()
    harness.slow, first.failure = True, UNREACHABLE
    reporters.request_report()

    await reporters.stop()

    ((_, last),) = second.taken
    assert last.kv["docker.state"] == "running"


class DeregisteredHarness(GroupHarness):
    """The host is deregistered while its first heartbeat is sent."""

    async def heartbeat(self, within_seconds: float | None) -> Heartbeat:
        """Deregister the host, and return what it says."""
        assert not self.deregistration.begin(within_seconds=0)
        return await super().heartbeat(within_seconds)


@in_virtual_time
async def test_after_a_deregistration_no_further_registry_of_the_group_is_asked(
    tmp_path: Path,
) -> None:
    harness = DeregisteredHarness(tmp_path)
    harness.registry.failure = UNREACHABLE

    async with harness.running():
        await harness.until_attempt_ended()
        await asyncio.sleep(3600)

    assert harness.asked() == [1, 0, 0]
    assert harness.events()[-1] == ("deregistered: no heartbeats until the agent is restarted", "")


@in_virtual_time
async def test_no_registry_is_asked_before_the_time_that_it_asked_for(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path, backoff=Backoff(max_seconds=5, random=Random(1)))
    first, second, third = harness.registries.values()
    clock = asyncio.get_running_loop()

    async with harness.running(taken=1):
        first.failure = Busy("503: no", retry_after_seconds=120)
        second.failure = Busy("503: no", retry_after_seconds=60)
        third.failure = UNREACHABLE  # it may be back at any time
        harness.reporter.request_report()
        await harness.until_attempt_ended()
        began = clock.time()
        await second.until(lambda: second.reports == 2, within=200)
        assert 60 <= clock.time() - began <= 65
        assert harness.asked()[0] == 2
        assert harness.asked()[2] >= 12
        await first.until(lambda: first.reports == 3, within=200)
        assert 120 <= clock.time() - began <= 125


@in_virtual_time
async def test_while_each_asks_for_a_pause_the_shortest_counts(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path)
    clock = asyncio.get_running_loop()
    pauses = zip(harness.registries.values(), (90, 40, 70), strict=True)
    for registry, seconds in pauses:
        registry.failure = Busy("503: no", retry_after_seconds=seconds)
    second = harness.registries[B]

    async with harness.running():
        await second.until(lambda: second.reports == 2, within=200)

    assert 40 <= clock.time() <= 41
    assert harness.asked() == [1, 2, 1]


@in_virtual_time
async def test_no_registry_can_silence_a_host_for_long(tmp_path: Path) -> None:
    harness = ReporterHarness(tmp_path)
    clock = asyncio.get_running_loop()
    harness.registry.failure = Busy("503: no", retry_after_seconds=1e9)

    async with harness.running() as registry:
        await registry.until(lambda: registry.reports == 2, within=600)

    assert MAX_RETRY_AFTER_SECONDS <= clock.time() <= MAX_RETRY_AFTER_SECONDS + 1


@in_virtual_time
async def test_while_its_registry_takes_the_heartbeats_no_other_is_asked(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path, max_silence_seconds=30)

    async with harness.running():
        await asyncio.sleep(3600)

    first, *others = harness.asked()
    assert first >= 3600 // 31
    assert others == [0, 0]
    assert harness.events() == [("registered", "")]


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("Connection refused"),
        TooSlow("no answer within 10 s"),
        Busy("503: loading"),
        Busy("502: Bad Gateway"),
        NotARegistry("it answers 404, and not as a registry does"),
        NotFound("404: no such path"),
        Redirected("it answers 302"),
        BadCertificate("expired"),
        CertificateRejected("it hung up right after the TLS handshake"),
        WrongKey("401: no"),
        NotPermitted("403: another host's key"),
        Busy("507: no room"),
    ],
)
@in_virtual_time
async def test_what_is_wrong_with_one_registry_moves_the_agent_at_once(
    tmp_path: Path, failure: RegistryError
) -> None:
    harness = GroupHarness(tmp_path)
    first, second, _ = harness.registries.values()

    async with harness.running(taken=1):
        first.failure = failure
        await harness.settle(second)

    assert harness.asked() == [2, 1, 0]
    assert harness.events() == [("registered", ""), ("moved to another registry", failure.kind)]
    line = harness.lines.entries[-1]
    assert (line["from"], line["to"], line["reason"]) == (A, B, str(failure))
    assert [harness.moves(url) for url in URLS] == [1, 0, 0]
    up = [harness.sample("rollcall_agent_registry_up", url) for url in URLS]
    assert up == [None, 1, None]
    assert [harness.statuses[url].current for url in URLS] == [False, True, False]
    assert (harness.statuses[A].state, harness.statuses[B].state) == (failure.kind, "taken")
    assert harness.count(failure.kind, A) == 1


@pytest.mark.parametrize(
    "failure",
    [
        Rejected("400: labels"),
        HostnameTaken("409: a live host has it"),
        OverLimit("429: too often"),
        BadFile("node.key: cannot be read"),
    ],
)
@in_virtual_time
async def test_an_answer_that_each_would_give_moves_nobody(
    tmp_path: Path, failure: RegistryError
) -> None:
    harness = GroupHarness(tmp_path)
    first, second, _ = harness.registries.values()

    async with harness.running():
        first.failure = failure
        await first.until(lambda: first.reports == 20)
        assert harness.asked() == [20, 0, 0]
        first.failure = UNREACHABLE
        second.failure = failure
        await second.until(lambda: second.reports == 20)

    assert harness.asked()[2] == 0
    assert harness.failover.url == A
    assert [harness.moves(url) for url in URLS] == [0, 0, 0]


@pytest.mark.slow
@in_virtual_time
async def test_it_stays_where_it_moved_to_when_the_first_one_is_back(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path, max_silence_seconds=30)
    first, second, _ = harness.registries.values()

    async with harness.running(taken=1):
        first.failure = UNREACHABLE
        await harness.settle(second)
        first.failure = None
        await asyncio.sleep(86_400)

    assert harness.asked()[0] == 2
    assert harness.asked()[2] == 0


@in_virtual_time
async def test_the_next_move_is_to_the_one_that_it_prefers(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path)
    first, second, third = harness.registries.values()

    async with harness.running():
        first.failure = second.failure = UNREACHABLE
        await harness.settle(third)
        first.failure, third.failure = None, UNREACHABLE
        await harness.settle(first)

    assert harness.failover.url == A
    assert harness.asked() == [2, 1, 2]


@in_virtual_time
async def test_while_all_are_busy_it_moves_nowhere_and_logs_each_once(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path)
    first = harness.registry

    async with harness.running(taken=1):
        for registry in harness.registries.values():
            registry.failure = Busy("503: no quorum")
        harness.reporter.request_report()
        await first.until(lambda: first.reports == 50)
        assert harness.failover.url == A
        assert harness.sample("rollcall_agent_registry_up", A) == 0
        for registry in harness.registries.values():
            registry.failure = None
        await harness.settle(first)

    assert harness.events() == [
        ("registered", ""),
        *[("heartbeat failed", "busy")] * 3,
        ("registry back", ""),
    ]
    assert [line.get("registry") for line in harness.lines.entries] == [A, A, B, C, A]
    assert [harness.moves(url) for url in URLS] == [0, 0, 0]


@in_virtual_time
async def test_only_the_connection_to_the_registry_in_use_is_kept(tmp_path: Path) -> None:
    harness = GroupHarness(tmp_path)
    first, second, third = harness.registries.values()

    def connected() -> list[bool]:
        return [registry.connected for registry in (first, second, third)]

    async with harness.running(taken=1):
        assert connected() == [True, False, False]
        first.failure = second.failure = Busy("503: no")
        await harness.settle(third)
        await harness.settle(third)
        assert connected() == [False, False, True]
        third.failure = Busy("503: no")
        harness.reporter.request_report()
        await harness.until_attempt_ended()
        await asyncio.sleep(0)
        assert connected() == [False, False, True]


@in_virtual_time
async def test_a_host_that_was_renamed_removes_its_old_name_wherever_it_comes(
    tmp_path: Path,
) -> None:
    async with GroupHarness(tmp_path).running() as registry:
        await registry.until(lambda: len(registry.taken) == 1)
    first, second, third = map(FakeRegistry, URLS)
    registries = {A: first, B: second, C: third}
    harness = ReporterHarness(tmp_path, registries=registries, hostname="web-2")

    async with harness.running():
        first.failure = UNREACHABLE
        await second.until(lambda: len(second.forgotten) == 1)
        first.failure, second.failure = None, UNREACHABLE
        harness.reporter.request_report()
        await first.until(lambda: len(first.forgotten) == 1)

    assert [name for name, _, _ in first.forgotten + second.forgotten] == ["web-1"] * 2
    left = Identity(directory=tmp_path, machine=None)
    assert [left.other_names(url, "web-2") for url in URLS] == [[], [], ["web-1"]]
