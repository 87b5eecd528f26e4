"""A watcher that comes back goes on after the last event that it has."""

import pytest

from tests.support.registry.in_process import InProcessRegistry
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.watching import forget_changes, watching


@pytest.mark.slow
async def test_who_resumes_gets_what_has_changed_since_and_nothing_twice(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.is_listed)
        await registry.post("web-2")
        await watcher.until(lambda seen: len(seen.nodes) == 2)
    await registry.post("web-3")
    await registry.ask("DELETE", "/nodes/web-1")

    await watcher.follow(events=2)

    kinds = [event.kind for event in watcher.events]
    assert kinds == ["reset", "node", "listed", "node", "node", "gone"]
    assert watcher.nodes.keys() == {"web-2", "web-3"}


@pytest.mark.slow
async def test_who_resumes_in_the_middle_of_the_list_gets_the_rest_of_it(
    registry: InProcessRegistry,
) -> None:
    for number in range(5):
        await registry.post(f"web-{number}")
    watcher = Watcher(registry.address)
    await watcher.follow(events=3)
    await registry.ask("DELETE", "/nodes/web-0")
    await registry.ask("DELETE", "/nodes/web-3")

    await watcher.follow(events=4)

    seen = [(event.kind, event.data.get("hostname")) for event in watcher.events[3:]]
    assert seen == [("gone", "web-0"), ("node", "web-2"), ("node", "web-4"), ("listed", None)]


@pytest.mark.slow
async def test_who_resumes_right_after_a_stale_node_is_reported_when_it_goes(
    registry: InProcessRegistry,
) -> None:
    for hostname in ("web-1", "web-2"):
        await registry.post(hostname)
    registry.clock.pass_seconds(100)
    watcher = Watcher(registry.address)
    await watcher.follow(events=2)
    assert watcher.nodes.keys() == {"web-1"}
    await registry.ask("DELETE", "/nodes/web-1")

    await watcher.follow(events=3)

    assert watcher.nodes.keys() == watcher.stale == {"web-2"}


@pytest.mark.slow
async def test_who_resumes_between_the_events_of_a_stale_node_is_reported_that_it_is_stale(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(100)
    watcher = Watcher(registry.address)
    await watcher.follow(events=2)
    assert watcher.nodes.keys() == {"web-1"}
    assert not watcher.stale
    await registry.post("web-2")

    await watcher.follow(events=3)

    assert watcher.nodes.keys() == {"web-1", "web-2"}
    assert watcher.stale == {"web-1"}


@pytest.mark.parametrize("last_id", ["", "x", "00000000-0", "00000000-1-web", "12", "-", "é"])
async def test_who_resumes_from_an_id_of_another_run_gets_all_nodes_again(
    registry: InProcessRegistry, last_id: str
) -> None:
    await registry.post("web-1")
    watcher = Watcher(registry.address)
    watcher.last_id = last_id

    await watcher.follow(events=3)

    assert [event.kind for event in watcher.events] == ["reset", "node", "listed"]


@pytest.mark.slow
async def test_who_comes_back_after_more_changes_than_are_kept_begins_anew(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.is_listed)
        await registry.post("web-1", ["b"])
        await watcher.until(lambda seen: len(seen.events) == 4)
    forget_changes(registry)

    await watcher.follow(events=3)

    assert [event.kind for event in watcher.events[4:]] == ["reset", "node", "listed"]
