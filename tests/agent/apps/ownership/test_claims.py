"""Of several agents that adopt the same identity, one has it, and nobody removes what is new."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path

import pytest

from agent.apps.labels import AGENT_LABEL
from agent.apps.ownership.adopt import Adopter, AdoptionResult
from agent.apps.ownership.claims import (
    ADOPTED_LABEL,
    CLAIM_LABEL,
    CLAIM_SECONDS,
    UNNAMED,
    Claim,
    adopted_by_others,
    claimant,
    grant_claim,
    make_claim,
    withdraw_claims,
)
from tests.support.agent.engines.fake_engine import FakeEngine, do_nothing
from tests.support.agent.in_process import identity_of
from tests.support.machine.clocks import in_virtual_time

GONE = "former"
HEIRS = ("a", "b", "c")
# An adoption over a claim and a mark that were left lists volumes six times, removes three of them
# and makes two. A list is one step, and each other call is two.
STEPS = 16
# Until it has listed the marks that there were before.
BEGINNING = range(1, 5)
# From where it has seen for the second time that it has the claim.
END = range(STEPS - 1, STEPS + 1)


class ListingEngine(FakeEngine):
    """An engine for which a list of volumes is a step, too."""

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        await self.at_step("list")
        return await super().volumes(label=label)


def agents(engine: FakeEngine, label: str) -> list[str]:
    """Return whose the volumes with this label are."""
    found = engine.state.volumes.values()
    return [labels.get(AGENT_LABEL, UNNAMED) for labels in found if label in labels]


async def adopt(engine: FakeEngine, agent: str) -> str | None:
    claim = await make_claim(engine, GONE, agent=agent)
    return await grant_claim(engine, claim)


async def give_way(_step: str) -> None:
    """Let the others go on at each step."""
    await asyncio.sleep(0)


def with_remains() -> FakeEngine:
    """Return an engine on which adoptions by another agent have left a claim and a mark."""
    engine = ListingEngine()
    for label in (CLAIM_LABEL, ADOPTED_LABEL):
        engine.state.volumes[label] = {label: GONE, AGENT_LABEL: "another"}
    return engine


def at(number: int, engine: FakeEngine, act: Callable[[], Awaitable[None]]) -> None:
    """Act once at a step of the engine, by its number."""
    numbers = count(1)

    async def step(_name: str) -> None:
        if next(numbers) == number:
            engine.at_step = do_nothing
            await act()

    engine.at_step = step


async def test_an_adoption_replaces_what_others_have_left() -> None:
    engine, steps = with_remains(), list[str]()

    async def note(step: str) -> None:
        steps.append(step)

    engine.at_step = note
    assert await adopt(engine, "heir") == "heir"

    assert (agents(engine, CLAIM_LABEL), agents(engine, ADOPTED_LABEL)) == ([], ["heir"])
    assert len(steps) == STEPS


@pytest.mark.parametrize("step", range(1, STEPS + 1))
async def test_one_that_adopts_during_any_step_of_another_keeps_its_mark(step: int) -> None:
    engine, met = with_remains(), list[str | None]()

    async def meet() -> None:
        met.append(await adopt(engine, "second"))

    at(step, engine, meet)
    first = await adopt(engine, "first")

    assert met == ["second"]
    # At the end, the first one has it, and the second one takes it over.
    assert first == ("first" if step in {*BEGINNING, *END} else "second")
    assert agents(engine, ADOPTED_LABEL) == ["first" if step in BEGINNING else "second"]
    assert agents(engine, CLAIM_LABEL) == []


@pytest.mark.parametrize("step", range(6, 14))
async def test_a_claim_that_is_withdrawn_leaves_no_mark(step: int) -> None:
    engine, own, withdrawn = with_remains(), frozenset({GONE}), list[str]()

    async def withdraw() -> None:
        withdrawn.extend(await withdraw_claims(engine, own, names=own))

    at(step, engine, withdraw)

    assert await adopt(engine, "heir") is None
    assert withdrawn == ["heir"]
    assert "heir" not in agents(engine, ADOPTED_LABEL)


@pytest.mark.parametrize("order", ["from the first", "from the last", "at once"])
async def test_of_those_who_claim_at_the_same_moment_one_has_it(order: str) -> None:
    engine, barrier = with_remains(), asyncio.Barrier(len(HEIRS))

    async def together(step: str) -> None:
        if step.endswith(" create volume"):
            await barrier.wait()

    async def claim(agent: str) -> Claim:
        return await make_claim(engine, GONE, agent=agent)

    engine.at_step = together
    claims = sorted(await asyncio.gather(*map(claim, HEIRS)), key=lambda each: each.volume)
    engine.at_step = do_nothing
    holder = claims[0].agent
    assert {await claimant(engine, each) for each in claims} == {holder}
    if order == "at once":
        engine.at_step = give_way
        reported = await asyncio.gather(*(grant_claim(engine, each) for each in claims))
    else:
        ordered = claims if order == "from the first" else claims[::-1]
        reported = [await grant_claim(engine, each) for each in ordered]

    assert reported == [holder] * len(HEIRS)
    assert agents(engine, ADOPTED_LABEL) == [holder]
    assert agents(engine, CLAIM_LABEL) == []


async def test_a_claim_that_does_not_tell_whose_it_is_is_withdrawn_like_any_other() -> None:
    engine = FakeEngine()
    engine.state.volumes["by hand"] = {CLAIM_LABEL: GONE}

    own = frozenset({GONE})
    assert await withdraw_claims(engine, own, names=frozenset({"somebody"})) == [UNNAMED]

    assert engine.state.volumes == {}


def test_a_mark_that_does_not_tell_whose_it_is_counts_as_that_of_another() -> None:
    volumes = {"by hand": {ADOPTED_LABEL: GONE}, "empty": {ADOPTED_LABEL: "b", AGENT_LABEL: ""}}

    assert adopted_by_others(volumes, names=frozenset({GONE})) == {GONE: UNNAMED, "b": UNNAMED}


@in_virtual_time
async def test_an_adoption_names_the_rival_that_does_not_tell_who_it_is(tmp_path: Path) -> None:
    engine, loop = FakeEngine(), asyncio.get_running_loop()

    async def meet(step: str) -> None:
        if step == "after create volume":
            engine.state.volumes["by hand"] = {CLAIM_LABEL: GONE}

    engine.at_step = meet
    adopter = Adopter(engine=engine, identity=identity_of(tmp_path, "heir"))

    (result,) = await adopter.adopt([GONE])

    assert result == AdoptionResult(identity=GONE, apps=(), done=False, rival=UNNAMED)
    assert agents(engine, CLAIM_LABEL) == [UNNAMED]
    assert loop.time() < CLAIM_SECONDS  # in virtual time: it goes on as soon as it is lost


@in_virtual_time
async def test_a_claim_that_is_lost_is_not_granted_though_the_other_goes(tmp_path: Path) -> None:
    engine, lists = ListingEngine(), count(1)
    volumes = engine.state.volumes

    async def meet(step: str) -> None:
        if step == "after create volume":
            volumes["a"] = {CLAIM_LABEL: GONE, AGENT_LABEL: "rival"}
        elif step == "list" and "a" in volumes and next(lists) == 2:
            del volumes["a"]  # its owner lives, and withdraws one claim after the other

    engine.at_step = meet
    adopter = Adopter(engine=engine, identity=identity_of(tmp_path, "heir"))

    (result,) = await adopter.adopt([GONE])

    assert result == AdoptionResult(identity=GONE, apps=(), done=False, rival="rival")
    assert volumes == {}
