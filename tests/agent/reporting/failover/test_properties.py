"""Whatever registries do: which of them an agent asks for a heartbeat, and in which order."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import Busy, OverLimit, RegistryError, TooSlow, Unreachable, WrongKey
from clients.message import Heartbeat, Node
from tests.support.agent.reporter_harness import FakeRegistry, ReporterHarness
from tests.support.machine.clocks import in_virtual_time

LIMIT_SECONDS = 10.0
EPSILON = 0.001
URLS = [f"http://registry-{number}:7655" for number in range(5)]
FAILURES: list[RegistryError | None] = [
    None,
    Unreachable("rejected"),
    TooSlow("no answer"),
    Busy("503"),
    Busy("503 with Retry-After", retry_after_seconds=30),
    OverLimit("429", retry_after_seconds=20),
    WrongKey("401"),
]


@dataclass
class Asked:
    """One request: to which registry, what it failed with, and when it ended."""

    url: str
    failure: RegistryError | None
    ended_at: float = 0.0


class ScriptedRegistry(FakeRegistry):
    """Answers as ``answer`` says, TooSlow after the time limit; notes the requests."""

    def __init__(self, url: str, asked: list[Asked]) -> None:
        super().__init__()
        self.answer: RegistryError | None = None
        self.url = url
        self.asked = asked
        self.under_way = 0

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Answer as the plan says."""
        request = Asked(self.url, self.answer)
        self.asked.append(request)
        self.under_way += 1
        assert self.under_way == 1
        if isinstance(self.answer, TooSlow):
            await asyncio.sleep(LIMIT_SECONDS)
        self.under_way -= 1
        request.ended_at = asyncio.get_running_loop().time()
        self.failure = self.answer
        return await super().report(hostname, heartbeat)


class Subject:
    """A failover over scripted registries, and what is known of it before each heartbeat."""

    def __init__(self, folder: Path, count: int) -> None:
        self.asked: list[Asked] = []
        self.registries = [ScriptedRegistry(url, self.asked) for url in URLS[:count]]
        self.harness = ReporterHarness(
            folder, registries={registry.url: registry for registry in self.registries}
        )
        self.open_at = dict.fromkeys((registry.url for registry in self.registries), 0.0)

    async def attempt(self, failures: Sequence[RegistryError | None]) -> None:
        """Report once while the registries answer so, and check what was asked."""
        clock = asyncio.get_running_loop()
        for registry, failure in zip(self.registries, failures, strict=True):
            registry.answer = failure
        before, current, began = len(self.asked), self.harness.failover.url, clock.time()
        wait = await self.harness.failover.report(
            self.harness.heartbeat, is_deregistered=self.harness.deregistration.is_deregistered
        )
        asked = self.asked[before:]

        assert clock.time() - began <= LIMIT_SECONDS * len(self.registries) + EPSILON
        self._check_order(asked, current, began)
        self._check_end(asked, current, wait)
        for each in asked:
            if each.failure is not None and not each.failure.final:
                pause = each.failure.retry_after_seconds or 0.0
                self.open_at[each.url] = each.ended_at + pause
        if wait is not None:
            await asyncio.sleep(wait + 0.1)

    def _check_order(self, asked: list[Asked], current: str, began: float) -> None:
        preferred = [current, *(each.url for each in self.registries if each.url != current)]
        limit = max(began, min(self.open_at.values()))
        allowed = [url for url in preferred if self.open_at[url] <= limit]
        assert [each.url for each in asked] == allowed[: len(asked)]
        assert all(each.failure is not None and not each.failure.final for each in asked[:-1])
        last = asked[-1].failure
        if last is not None and not last.final:
            assert len(asked) == len(allowed)

    def _check_end(self, asked: list[Asked], current: str, wait: float | None) -> None:
        taken = asked[-1].failure is None
        assert (wait is None) == taken
        assert self.harness.failover.url == (asked[-1].url if taken else current)
        kept = [each.url for each in self.registries if each.connected]
        assert set(kept) <= {self.harness.failover.url}
        in_use = [url for url, status in self.harness.statuses.items() if status.current]
        assert in_use == [self.harness.failover.url]


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, list[list[RegistryError | None]]]:
    """Draw a number of registries, and their answers to each of some heartbeats."""
    count = draw(st.integers(1, len(URLS)))
    answers = st.lists(st.sampled_from(FAILURES), min_size=count, max_size=count)
    return count, draw(st.lists(answers, min_size=1, max_size=12))


@pytest.mark.slow
@given(scripts())
@in_virtual_time
async def test_it_asks_one_after_another_leaves_no_good_one_and_ends_within_the_limits(
    script: tuple[int, list[list[RegistryError | None]]],
) -> None:
    count, heartbeats = script
    with TemporaryDirectory() as folder:
        subject = Subject(Path(folder), count)
        for failures in heartbeats:
            await subject.attempt(failures)

    moves = sum(
        subject.harness.metrics.get_sample_value(
            "rollcall_agent_registry_moves_total", {"registry": each.url}
        )
        or 0
        for each in subject.registries
    )
    takers = [subject.registries[0].url, *(e.url for e in subject.asked if e.failure is None)]
    assert moves == sum(one != other for one, other in pairwise(takers))
