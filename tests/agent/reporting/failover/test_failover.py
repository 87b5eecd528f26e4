"""An agent with several registries, of which it uses one: when it moves, and when it stays."""

import asyncio
from pathlib import Path

import pytest

from agent.state.identity import Identity
from clients.errors import (
    BadCertificate,
    BadFile,
    Busy,
    CertificateRefused,
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
        CertificateRefused("it hung up right after the TLS handshake"),
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
    first, second, third = FakeRegistry(), FakeRegistry(), FakeRegistry()
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
