"""Which events of a container come from what the agent asked the engine to do to it."""

import asyncio
from pathlib import Path

import pytest

from agent.apps.admission.disk import flush_disks
from agent.apps.containers.own_calls import GRACE_SECONDS, UNANSWERED_SECONDS
from agent.apps.host import make_host
from agent.engine.errors import EngineRejected, EngineUnavailable
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer, FakeEngineState
from tests.support.machine.clocks import ManualClock


def running_container() -> FakeContainer:
    return FakeContainer(
        id="c1",
        name="web",
        image="app:1",
        labels={},
        env={},
        ports=[],
        volumes={},
        cpu=100,
        memory=64,
        image_id="i1",
        state="running",
    )


def engine_with_container() -> FakeEngine:
    return FakeEngine(FakeEngineState(containers={"c1": running_container()}))


async def test_only_events_of_the_call_from_its_beginning_to_just_after_its_end_are_caused(
    tmp_path: Path,
) -> None:
    clock, engine = ManualClock(1000.0), engine_with_container()
    host = make_host(context_of(engine, tmp_path, clock=clock), flush_disks)
    containers, calls = host.containers, host.containers.calls

    async def take_a_while(step: str) -> None:
        if step == "after stop":
            assert calls.caused("c1", "kill", clock.now)
            clock.now = 1010.0

    engine.at_step = take_a_while
    await containers.stop(await engine.inspect("c1"))

    assert calls.caused("c1", "die", 1000)
    assert calls.caused("c1", "die", 1010 + GRACE_SECONDS)
    assert not calls.caused("c1", "die", 999.9)
    assert not calls.caused("c1", "die", 1010.1 + GRACE_SECONDS)
    assert not calls.caused("c1", "start", 1005)
    assert not calls.caused("c2", "die", 1005)


async def test_a_crash_and_a_restart_just_after_a_start_are_not_caused_by_it(
    tmp_path: Path,
) -> None:
    clock, engine = ManualClock(1000.0), engine_with_container()
    host = make_host(context_of(engine, tmp_path, clock=clock), flush_disks)
    containers, calls = host.containers, host.containers.calls

    await containers.start_unchecked(await engine.inspect("c1"))

    assert calls.caused("c1", "start", clock.now)
    assert not calls.caused("c1", "die", clock.now)
    assert not calls.caused("c1", "start", clock.now + 0.1)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (EngineUnavailable("away"), UNANSWERED_SECONDS),
        (asyncio.CancelledError(), UNANSWERED_SECONDS),
        (EngineRejected("no"), GRACE_SECONDS),
    ],
)
async def test_what_a_call_without_an_answer_may_still_cause_is_caused(
    tmp_path: Path, error: BaseException, seconds: float
) -> None:
    clock, engine = ManualClock(1000.0), engine_with_container()
    host = make_host(context_of(engine, tmp_path, clock=clock), flush_disks)
    containers, calls = host.containers, host.containers.calls

    async def fail(step: str) -> None:
        if step == "before stop":
            raise error

    engine.at_step = fail
    with pytest.raises(type(error)):
        await containers.stop(await engine.inspect("c1"))

    assert calls.caused("c1", "die", 1000 + seconds)
    assert not calls.caused("c1", "die", 1000.1 + seconds)
