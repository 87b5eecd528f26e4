"""Registries that ask for a pause are asked again after it, and none can ask for too long a one."""

import asyncio
from pathlib import Path
from random import Random

from agent.reporting.failover import MAX_RETRY_AFTER_SECONDS
from clients.errors import Busy
from runtime.pauses import Backoff
from tests.support.agent.reporter_harness import UNREACHABLE, B, GroupHarness, ReporterHarness
from tests.support.machine.clocks import in_virtual_time


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
