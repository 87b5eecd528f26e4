"""A watch that goes on at any of several registries which share a store."""

import asyncio
import random

import pytest

from tests.support.examples import share_of
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.watcher import Watcher, without_time
from tests.support.registry.stores.shared_store import SharedLog
from tests.support.run.release import some_of
from tests.support.waiting import async_until

HOSTS = [f"h{number:03}" for number in range(100)]


async def change(registries: list[InProcessRegistry], chance: random.Random) -> None:
    """Change nodes through random registries, until it is cancelled."""
    while True:
        registry, host = chance.choice(registries), chance.choice(HOSTS)
        if chance.randrange(5):
            await registry.post(host, [f"service:{chance.choice('ab')}"])
        else:
            await registry.ask("DELETE", f"/nodes/{host}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", some_of(["", "&label=service:a"], "&label=service:a", reason="without a filter")
)
async def test_a_watcher_that_goes_from_one_registry_to_another_knows_what_the_lists_say(
    query: str,
) -> None:
    """The connections are cut anywhere, also within an event."""
    chance, log = random.Random(11), SharedLog(11)
    async with (
        in_process_registry(level="error", store=log.store()) as one,
        in_process_registry(level="error", store=log.store()) as other,
    ):
        both = [one, other]
        await asyncio.gather(*[one.post(host, ["service:a"]) for host in HOSTS])
        changing = [asyncio.create_task(change(both, chance)) for _ in range(3)]
        watcher, connections = Watcher(one.address, query), share_of(50)
        for _ in range(connections):
            watcher.go_to(chance.choice(both).address)
            await watcher.follow(lines=chance.randrange(1, 200))
        for task in changing:
            task.cancel()
        await asyncio.gather(*changing, return_exceptions=True)

        resets = sum(event.kind == "reset" for event in watcher.events)
        assert resets < connections / 2  # the others resumed
        await agrees(watcher, both, query)


async def agrees(watcher: Watcher, registries: list[InProcessRegistry], query: str) -> None:
    """Follow until the watcher knows what the lists of all registries say."""
    path = f"/nodes?{query.removeprefix('&')}"
    task = asyncio.create_task(watcher.follow())

    async def all_say_the_same() -> bool:
        lists = [await registry.get(path) for registry in registries]
        known = [{node["hostname"]: without_time(node) for node in nodes} for nodes in lists]
        return all(nodes == watcher.nodes for nodes in known)

    try:
        await async_until(all_say_the_same)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
