"""Lists of targets share their blocks; what nobody asks for or offers takes no memory."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from registry.prometheus.answers import AnswerLru, Service
from registry.prometheus.offers import Offer
from tests.support.registry.encoded_runs import run_of
from tests.support.registry.indexed_nodes import PLAIN, IndexedNodes, joined


@pytest.mark.slow
async def test_after_one_change_nearly_all_of_an_answer_is_what_it_was() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN, rack="r1")
    before = await fleet.index.answer("node", "flat")
    fleet.report("h1000", PLAIN, rack="r2")

    after = await fleet.index.answer("node", "flat")

    assert len(msgspec.json.decode(joined(after))) == 2000
    assert after.digest != before.digest
    assert 0 < before.pinned().size < len(joined(after)) / 20


@pytest.mark.slow
async def test_what_several_old_answers_share_counts_once_and_until_the_last_is_gone() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN, rack="r0")
    first = await fleet.index.answer("node", "flat")
    older = []
    for rack in range(1, 6):
        fleet.report("h1000", PLAIN, rack=f"r{rack}")
        older.append(await fleet.index.answer("node", "flat"))
    fleet.report("h0001", PLAIN, rack="r1")
    one_block = first.pinned().size // len(older)
    assert 0 < one_block < first.size / 20

    last = await fleet.index.answer("node", "flat")

    assert {answer.pinned() for answer in older} == {last.pinned()}
    # Five versions of one block, and one version of another, which all of them share.
    assert 5.9 < last.pinned().size / one_block < 6.1
    older.clear()
    assert 1.9 < last.pinned().size / one_block < 2.1
    del first
    assert last.pinned().size == 0


@pytest.mark.slow
async def test_a_list_that_is_being_made_while_its_nodes_change_counts() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN)
    await fleet.index.refresh()
    asking = asyncio.create_task(fleet.index.answer("node", "flat"))
    await asyncio.sleep(0)
    while not asking.done():
        for number in range(0, 2000, 10):
            fleet.report(f"h{number:04}", PLAIN)
        fleet.index.refresh_some()
        await asyncio.sleep(0)

    answer = await asking

    assert answer.pinned().size > answer.size / 2
    fleet.remove("h0000")
    await fleet.index.refresh()
    del answer, asking
    assert (await fleet.index.answer("node", "flat")).pinned().size == 0


def test_the_answers_asked_for_longest_ago_are_let_go_of_and_the_last_is_kept() -> None:
    kept = AnswerLru(limit=1000)
    services = {name: offering(name) for name in "abc"}

    use(kept, services["a"], 400)
    use(kept, services["b"], 400)
    use(kept, services["a"], 500)
    use(kept, services["c"], 400)
    assert [is_kept(services[name]) for name in "abc"] == [True, False, True]
    assert kept.total_bytes == 900

    use(kept, services["c"], 5000)
    assert [is_kept(services[name]) for name in "abc"] == [False, False, True]
    assert kept.total_bytes == 5000


def test_an_answer_that_is_used_while_it_is_let_go_of_stays() -> None:
    kept = AnswerLru(limit=1000)
    services = {name: offering(name, nodes=100) for name in "abc"}
    use(kept, services["a"], 400)
    use(kept, services["b"], 400)
    kept.record_use(services["c"], "flat", 400)
    dropping = kept.drop_oldest()
    next(dropping)

    kept.begin(services["a"], "flat")
    finish(dropping)

    assert [is_kept(services[name]) for name in "abc"] == [True, False, True]
    assert kept.total_bytes == 800


def use(kept: AnswerLru, service: Service, size: int) -> None:
    kept.record_use(service, "flat", size)
    finish(kept.drop_oldest())


def finish(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def offering(name: str, *, nodes: int = 1) -> Service:
    service = Service(name)
    for number in range(nodes):
        service.put(Offer(f"h{number:03}", (b'["h1:1"]', b"{}"), (), targets=1))
    for block in service.offers.blocks():
        block.runs["flat"] = run_of([b"{}"])
    return service


def is_kept(service: Service) -> bool:
    return "flat" in service.offers.blocks()[-1].runs


@pytest.mark.slow
async def test_a_service_that_no_node_offers_any_more_takes_no_memory() -> None:
    fleet = IndexedNodes()
    for number in range(100):
        fleet.report("web-1", [f"prometheus:s{number}"])
        await fleet.ask(f"s{number}")

    assert len(fleet.index) == 1
    fleet.remove("web-1")
    await fleet.index.refresh()
    assert len(fleet.index) == 0
    assert await fleet.ask("s99") == b"[]"
