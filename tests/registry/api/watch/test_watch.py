"""GET /nodes?watch=true: whoever follows the events knows what the list says."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from registry.errors import StoreUnavailable
from registry.nodes.directory.events import REGISTRY, Change, ChangeKind
from tests.support.examples import share_of
from tests.support.registry.in_process import OPS, InProcessRegistry, in_process_registry
from tests.support.registry.load.watcher import Watcher, without_time
from tests.support.waiting import async_until

WATCH = (
    f"GET /nodes?watch=true HTTP/1.1\r\nHost: registry\r\nAuthorization: Bearer {OPS}\r\n\r\n"
).encode()


@asynccontextmanager
async def watching(registry: InProcessRegistry, query: str = "") -> AsyncIterator[Watcher]:
    """Watch while the context is open."""
    watcher = Watcher(registry.address, query)
    task = asyncio.create_task(watcher.follow())
    try:
        await watcher.until(lambda seen: seen.events)
        yield watcher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def listed(registry: InProcessRegistry, query: str = "") -> dict[str, Any]:
    """Return what the list says."""
    nodes = await registry.get(f"/nodes{query}")
    return {node["hostname"]: without_time(node) for node in nodes}


@pytest.mark.slow
async def test_a_watch_begins_with_all_nodes(registry: InProcessRegistry) -> None:
    await registry.post("web-2", ["a"], {"k": "v"})
    await registry.post("web-1")

    async with watching(registry) as watcher:
        await watcher.until(lambda seen: len(seen.nodes) == 2)

        assert [event.kind for event in watcher.events] == ["reset", "node", "node"]
        assert [event.data.get("hostname") for event in watcher.events] == [None, "web-1", "web-2"]
        assert watcher.events[2].data == (await registry.get("/nodes/web-2"))[0]
        assert len({event.id for event in watcher.events}) == 3


@pytest.mark.slow
async def test_each_change_is_an_event_and_heartbeats_are_none(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a"])
    async with watching(registry) as watcher:
        await watcher.until(lambda seen: seen.nodes)
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


async def test_who_begins_later_is_told_which_nodes_are_stale(registry: InProcessRegistry) -> None:
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
        await watcher.until(lambda seen: seen.nodes)
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
            ("node", "db-1"),
            ("gone", "web-1"),
            ("gone", "db-1"),
        ]


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
async def test_new_keys_end_a_watch(registry: InProcessRegistry) -> None:
    watcher = Watcher(registry.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: seen.events)

    registry.keyring.replace([], derived=None)
    registry.components.wakeups.notify()

    await asyncio.wait_for(following, 60)


@pytest.mark.slow
async def test_a_store_that_fails_ends_a_watch(registry: InProcessRegistry) -> None:
    watcher = Watcher(registry.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: seen.events)

    registry.store.failure = StoreUnavailable("broken")
    assert (await registry.post("web-1")).status == 503
    registry.components.wakeups.notify()

    await asyncio.wait_for(following, 60)


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


@pytest.mark.slow
async def test_a_watcher_that_falls_behind_is_cut_off(registry: InProcessRegistry) -> None:
    await registry.post("web-1")
    watcher = Watcher(registry.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: seen.nodes)

    forget_changes(registry)
    registry.components.wakeups.notify()

    await asyncio.wait_for(following, 60)
    assert len(watcher.events) == 2


def forget_changes(registry: InProcessRegistry) -> None:
    """Record so many changes of a node that none from before is kept."""
    entry = registry.components.directory.get("web-1")
    assert entry is not None
    history = registry.components.history
    last = history.last
    while history.first <= last:
        history.record(Change(ChangeKind.CHANGED, entry, REGISTRY, b"x" * 1_000_000))


@pytest.mark.slow
async def test_a_client_that_takes_nothing_is_cut_off_once_its_changes_are_forgotten(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", [f"label:{'x' * 900}:{number}" for number in range(1000)])
    reader, writer = await asyncio.open_connection(*registry.address, limit=1024)
    writer.write(WATCH)
    await reader.readuntil(b"\r\n\r\n")
    await until_watched_by(registry, 1)

    forget_changes(registry)

    await until_watched_by(registry, 0)
    writer.close()


@pytest.mark.slow
async def test_clients_that_leave_make_room_although_nothing_changes(
    registry: InProcessRegistry,
) -> None:
    streams = [await asyncio.open_connection(*registry.address) for _ in range(3)]
    for reader, writer in streams:
        writer.write(WATCH)
        await reader.readuntil(b"event: reset")
    await until_watched_by(registry, 3)

    for _, writer in streams:
        writer.close()

    await until_watched_by(registry, 0)


async def until_watched_by(registry: InProcessRegistry, clients: int) -> None:
    """Wait until that many clients watch."""

    async def holds() -> bool:
        text = (await registry.ask("GET", "/metrics")).body.decode()
        return f"rollcall_registry_watchers {clients}.0\n" in text

    await async_until(holds)


async def all_know(watchers: list[Watcher], condition: Callable[[Watcher], object]) -> None:
    await asyncio.gather(*[each.until(condition) for each in watchers])


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


async def test_the_end_of_the_registry_ends_a_watch() -> None:
    async with in_process_registry() as registry:
        watcher = Watcher(registry.address)
        following = asyncio.create_task(watcher.follow())
        await watcher.until(lambda seen: seen.events)
    await asyncio.wait_for(following, 60)
