"""A watcher that comes back goes on after the last event that it has."""

import asyncio
import random

import pytest

from tests.support.examples import share_of
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.watching import forget_changes, listed, watching


@pytest.mark.slow
async def test_who_resumes_gets_what_has_changed_since_and_nothing_twice(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.nodes)
        await registry.post("web-2")
        await watcher.until(lambda seen: len(seen.nodes) == 2)
    await registry.post("web-3")
    await registry.ask("DELETE", "/nodes/web-1")

    await watcher.follow(events=2)

    kinds = [event.kind for event in watcher.events]
    assert kinds == ["reset", "node", "node", "node", "gone"]
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

    await watcher.follow(events=3)

    seen = [(event.kind, event.data.get("hostname")) for event in watcher.events[3:]]
    assert seen == [("gone", "web-0"), ("node", "web-2"), ("node", "web-4")]


@pytest.mark.slow
async def test_who_resumes_right_after_a_stale_node_is_told_when_it_goes(
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


@pytest.mark.parametrize("last_id", ["", "x", "00000000-0", "00000000-1-web", "12", "-", "é"])
async def test_who_resumes_from_an_id_of_another_run_gets_all_nodes_again(
    registry: InProcessRegistry, last_id: str
) -> None:
    await registry.post("web-1")
    watcher = Watcher(registry.address)
    watcher.last_id = last_id

    await watcher.follow(events=2)

    assert [event.kind for event in watcher.events] == ["reset", "node"]


@pytest.mark.slow
async def test_after_any_number_of_lost_connections_a_watcher_knows_what_the_list_says() -> None:
    chance = random.Random(7)
    hosts = [f"h{number:03}" for number in range(400)]
    async with in_process_registry(level="error") as registry:
        await asyncio.gather(*[registry.post(host, ["service:a"]) for host in hosts[:300]])
        done = False

        async def change() -> None:
            while not done:
                host = chance.choice(hosts)
                match chance.randrange(6):
                    case 0:
                        await registry.ask("DELETE", f"/nodes/{host}")
                    case 1:
                        registry.clock.pass_seconds(chance.randrange(100))
                        await registry.components.queries.update_ages()
                    case _:
                        await registry.post(host, [f"service:{chance.choice('ab')}"])

        changing = [asyncio.create_task(change()) for _ in range(3)]
        watchers = [Watcher(registry.address), Watcher(registry.address, "&label=service:a")]
        for _ in range(share_of(100)):
            for watcher in watchers:
                await watcher.follow(events=chance.randrange(1, 120))
        done = True
        await asyncio.gather(*changing)
        await knows_what_the_list_says(watchers[0], registry)
        await knows_what_the_list_says(watchers[1], registry, "?label=service:a")


async def knows_what_the_list_says(
    watcher: Watcher, registry: InProcessRegistry, query: str = ""
) -> None:
    """Follow until the watcher knows what the list says, and no other state."""
    nodes = await listed(registry, query)
    stale = {entry.hostname for entry in registry.components.directory.stale()} & nodes.keys()
    task = asyncio.create_task(watcher.follow())
    try:
        state = (nodes, stale)
        await asyncio.wait_for(watcher.until(lambda seen: (seen.nodes, seen.stale) == state), 60)
    finally:
        task.cancel()


@pytest.mark.slow
async def test_who_comes_back_after_more_changes_than_are_kept_begins_anew(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.nodes)
        await registry.post("web-1", ["b"])
        await watcher.until(lambda seen: len(seen.events) == 3)
    forget_changes(registry)

    await watcher.follow(events=2)

    assert [event.kind for event in watcher.events[3:]] == ["reset", "node"]
