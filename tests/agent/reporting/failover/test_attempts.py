"""An attempt that goes from one registry to the next: its heartbeats, and the end of the agent."""

import asyncio
from pathlib import Path

import pytest

from clients.message import Heartbeat
from tests.support.agent.reporter_harness import UNREACHABLE, URLS, A, GroupHarness
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
