"""Which images count as pulled by the agent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.apps.context import AgentContext
from agent.apps.images.pulled import MOST_PULLS, PulledImages
from agent.apps.repository.repository import AppRepository
from agent.engine.errors import PullTimeout
from agent.engine.models import ImageEvent, PullProgress
from agent.state.history import Pull
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.database.transactions import read_back
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.pulling_engine import PullingEngine

ONE, OTHER = "s/app:1", "s/app:other"
BEGAN_AT = 1_000_000.0


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AgentContext]:
    async with opened_host(FakeEngine(), tmp_path, clock=lambda: BEGAN_AT) as host:
        yield host.context


@pytest.fixture
def repository(context: AgentContext) -> AppRepository:
    return context.repository


class LatePullEngine(PullingEngine):
    """An engine whose pulls last; what is pulled in the end is brought by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.serve({ONE: "p1"})
        self.pulling = asyncio.Event()
        self.is_late = asyncio.Event()

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del reference, progress
        self.pulling.set()
        await self.is_late.wait()
        raise PullTimeout("its pull took longer than 10 s")

    def carry_out(self, at: float) -> None:
        """End a pull, of whomever, at a Unix time."""
        self.bring(ONE, self.served[ONE])
        self.image_history[ONE] = [ImageEvent(action="pull", time=at)]


@pytest.mark.parametrize("ends", ["cancelled", "too late"])
@pytest.mark.parametrize(("seconds_later", "pulled"), [(1, {"p1": {ONE}}), (3, {})])
async def test_an_image_is_the_agents_if_its_pull_ended_just_after_the_agent_gave_it_up(
    context: AgentContext, ends: str, seconds_later: float, pulled: dict[str, set[str]]
) -> None:
    now, engine = BEGAN_AT, LatePullEngine()
    images = PulledImages(replace(context, engine=engine, clock=lambda: now))
    pull = asyncio.create_task(images.pull(ONE, lambda _: None))
    await engine.pulling.wait()

    now += 10
    if ends == "cancelled":
        pull.cancel()
    else:
        engine.is_late.set()
    await asyncio.wait({pull})
    engine.carry_out(at=now + seconds_later)
    now += 100
    await images.finish_interrupted()

    assert context.repository.pulls.images == pulled
    assert context.repository.pulls.begun == {}


async def test_an_image_that_two_pulls_brought_has_the_tags_of_both(
    repository: AppRepository, tmp_path: Path
) -> None:
    pulls = [
        Pull(reference=each, began_at=BEGAN_AT, alive_at=BEGAN_AT, images={})
        for each in (ONE, OTHER)
    ]
    for pull in pulls:
        await repository.pulls.begin(pull)

    ends = (repository.pulls.end(each, "p1", frozenset({each.reference})) for each in pulls)
    await asyncio.gather(*ends)

    assert repository.pulls.images == {"p1": {ONE, OTHER}}
    assert (await read_back(tmp_path / "agent.db")).pulled == {"p1": {ONE, OTHER}}


class WaitingEngine(PullingEngine):
    """An engine whose pulls last until they may end; ``asked`` counts those that began."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Semaphore(0)
        self.may_end = asyncio.Event()

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        self.asked.release()
        await self.may_end.wait()
        await super().pull(reference, progress)


async def test_more_pulls_than_may_run_wait_for_their_turn_and_can_be_cancelled_meanwhile(
    context: AgentContext, repository: AppRepository
) -> None:
    engine = WaitingEngine()
    references = [f"s/app:{number}" for number in range(MOST_PULLS + 2)]
    engine.serve({reference: f"p-{reference}" for reference in references})
    images = PulledImages(replace(context, engine=engine))
    pulls = [asyncio.create_task(images.pull(each, lambda _: None)) for each in references]
    for _ in range(MOST_PULLS):
        await engine.asked.acquire()

    assert repository.pulls.begun.keys() == set(references[:MOST_PULLS])
    pulls[-1].cancel()
    await asyncio.wait({pulls[-1]})
    engine.may_end.set()
    await asyncio.gather(*pulls[:-1])

    assert engine.pulls == references[:-1]
    assert repository.pulls.images.keys() == {f"p-{each}" for each in references[:-1]}
    assert repository.pulls.begun == {}
