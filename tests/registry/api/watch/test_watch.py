"""GET /nodes?watch=true: whoever follows the events knows what the list says."""

import asyncio
import itertools
from contextlib import AsyncExitStack

import msgspec
import pytest

from tests.support.registry.in_process import NO_LIMITS, InProcessRegistry, in_process_registry
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.watching import listed, watching

LISTED = ("listed", None)


def seen(watcher: Watcher) -> list[tuple[str, str | None]]:
    """Return the kind and the hostname of each event."""
    return [(event.kind, event.data.get("hostname")) for event in watcher.events]


@pytest.mark.slow
async def test_a_watch_begins_with_all_nodes(registry: InProcessRegistry) -> None:
    await registry.post("web-2", ["a"], {"k": "v"})
    await registry.post("web-1")

    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.is_listed)

        assert seen(watcher) == [("reset", None), ("node", "web-1"), ("node", "web-2"), LISTED]
        assert watcher.events[2].data == (await registry.get("/nodes/web-2"))[0]
        assert len({event.id for event in watcher.events}) == 4


async def test_who_begins_later_gets_each_node_once_as_it_is_then(
    registry: InProcessRegistry,
) -> None:
    for hostname in ("db-1", "web-1", "web-2", "web-3"):
        await registry.post(hostname, ["old"])
    async with watching(registry) as earlier:
        await earlier.until(lambda seen: seen.is_listed)
    registry.clock.pass_seconds(50)
    await registry.post("web-1", ["old"])  # only last_update changes
    await registry.post("web-2", ["new"])
    await registry.ask("DELETE", "/nodes/db-1")
    registry.clock.pass_seconds(60)
    await registry.components.queries.update_ages()  # web-3 is stale
    await registry.post("web-2", ["newer"])

    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.is_listed)

    names = ["web-1", "web-2", "web-3"]
    nodes = [("node", name) for name in names]
    assert seen(watcher) == [("reset", None), *nodes, ("stale", "web-3"), LISTED]
    listed_nodes = [event.data for event in watcher.events if event.kind == "node"]
    assert listed_nodes == await registry.get("/nodes")


async def test_an_unchanged_heartbeat_is_in_the_list_of_who_begins_after_it(
    registry: InProcessRegistry,
) -> None:
    for _ in range(3):
        registry.clock.pass_seconds(10)
        await registry.post("web-1", ["a"])

        async with watching(registry, "&label=a") as watcher:
            await watcher.until(lambda seen: seen.is_listed)

        assert watcher.events[1].data == (await registry.get("/nodes/web-1"))[0]


async def test_the_changes_that_follow_the_list_begin_after_the_id_of_its_end(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    watcher = Watcher(registry.address)
    await watcher.follow(events=3)
    assert watcher.events[-1].kind == "listed"
    await registry.post("web-2")

    await watcher.follow(events=1)

    assert seen(watcher)[3:] == [("node", "web-2")]


async def test_the_end_of_the_list_says_how_long_hosts_may_still_be_missing() -> None:
    limits = msgspec.structs.replace(NO_LIMITS, warm_up_seconds=90)
    store = MemoryStore(continues=False)
    async with in_process_registry(limits=limits, store=store) as registry:
        await registry.post("web-1")
        for warming in ({"warming_seconds": 90}, {}):
            async with watching(registry) as watcher:
                await watcher.until(lambda seen: seen.is_listed)
            assert watcher.events[-1].data == warming
            registry.clock.pass_seconds(90)


@pytest.mark.slow
async def test_each_change_is_an_event_and_heartbeats_are_none(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a"])
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.is_listed)
        seen_before = len(watcher.events)
        await registry.post("web-1", ["a"])
        await registry.post("web-1", ["b"])
        await registry.post("web-2")
        registry.clock.pass_seconds(100)
        await registry.components.queries.update_ages()
        await registry.post("web-1", ["b"])
        await registry.ask("DELETE", "/nodes/web-2")

        await watcher.until(lambda seen: seen.events[-1].kind == "gone")

        events = watcher.events[seen_before:]
        assert [(event.kind, event.data["hostname"]) for event in events] == [
            ("node", "web-1"),
            ("node", "web-2"),
            ("stale", "web-1"),
            ("stale", "web-2"),
            ("fresh", "web-1"),
            ("gone", "web-2"),
        ]


async def test_who_begins_later_is_reported_which_nodes_are_stale(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    registry.clock.pass_seconds(100)
    await registry.post("web-2")

    async with watching(registry) as watcher:
        await watcher.until(lambda seen: len(seen.nodes) == 2)

        assert watcher.stale == {"web-1"}


@pytest.mark.slow
async def test_a_filter_shows_nodes_that_begin_and_cease_to_match(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["service:web"])
    await registry.post("db-1", ["service:db"])

    async with watching(registry, "&label=service:web") as watcher:
        await watcher.until(lambda seen: seen.is_listed)
        await registry.post("db-1", ["service:db", "more"])
        await registry.post("db-1", ["service:web"])
        await registry.post("web-1", ["service:none"])
        await registry.post("web-1", ["service:none", "more"])
        await registry.ask("DELETE", "/nodes/web-1")
        await registry.ask("DELETE", "/nodes/db-1")
        await watcher.until(lambda seen: not seen.nodes)

        assert [(event.kind, event.data.get("hostname")) for event in watcher.events] == [
            ("reset", None),
            ("node", "web-1"),
            LISTED,
            ("node", "db-1"),
            ("gone", "web-1"),
            ("gone", "db-1"),
        ]


@pytest.mark.real
async def test_a_comment_comes_every_fifteen_seconds_although_others_change(
    registry: InProcessRegistry,
) -> None:
    async with watching(registry, "&label=none") as watcher:
        before = watcher.last_id
        seconds = 0
        while not watcher.comments:
            await registry.post("web-1", [f"second:{seconds}"])
            seconds += 1
            await asyncio.sleep(1)
        assert 14 <= seconds <= 40
        await asyncio.sleep(0)
        assert watcher.last_id != before


@pytest.mark.parametrize(
    "query", ["&max_age=30", "&stale=true", "&limit=10", "&after=a", "&watch=true", "&x=y"]
)
async def test_what_cannot_be_watched_is_400(registry: InProcessRegistry, query: str) -> None:
    answer = await registry.ask("GET", f"/nodes?watch=true{query}")

    assert answer.status == 400
    assert answer.json()["message"]


@pytest.mark.slow
async def test_a_watch_is_true_or_false(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/nodes?watch=yes")).status == 400
    assert (await registry.ask("GET", "/nodes?watch=false")).body == b"[]"


async def test_a_head_of_a_watch_has_no_body(registry: InProcessRegistry) -> None:
    answer = await registry.ask("HEAD", "/nodes?watch=true")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Type"] == "text/event-stream"


@pytest.mark.slow
async def test_many_who_begin_together_beside_changes_know_what_the_list_says(
    registry: InProcessRegistry,
) -> None:
    for number in range(1000):
        await registry.post(f"web-{number:04}", ["service:web"], {"text": "x" * 200})
    numbers = itertools.count()

    async def change() -> None:
        while True:
            number = next(numbers)
            await registry.post(f"web-{number * 7 % 1000:04}", ["service:web", f"n:{number}"])

    async with AsyncExitStack() as stack:
        changes = asyncio.create_task(change())
        watchers = await asyncio.gather(
            *[stack.enter_async_context(watching(registry)) for _ in range(60)]
        )
        await asyncio.gather(
            *[each.until(lambda seen: len(seen.nodes) == 1000) for each in watchers]
        )
        changes.cancel()
        await asyncio.gather(changes, return_exceptions=True)
        await registry.post("zz-last")
        await asyncio.gather(
            *[each.until(lambda seen: "zz-last" in seen.nodes) for each in watchers]
        )

        expected = await listed(registry)
        assert all(each.nodes == expected for each in watchers)


async def test_a_key_that_may_not_read_may_not_watch(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/nodes?watch=true", key=None)).status == 401
