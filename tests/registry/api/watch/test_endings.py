"""A watch ends with its keys, its store, its client or the registry."""

import asyncio

import pytest

from httpd.auth import Caller, fingerprint
from registry.errors import StoreUnavailable
from tests.support.registry.in_process import (
    OPS,
    READER,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.watching import forget_changes
from tests.support.waiting import async_until

WATCH = (
    f"GET /nodes?watch=true HTTP/1.1\r\nHost: registry\r\nAuthorization: Bearer {OPS}\r\n\r\n"
).encode()


@pytest.mark.slow
async def test_a_watch_ends_with_its_key_and_outlives_other_keys(
    registry: InProcessRegistry,
) -> None:
    watcher = Watcher(registry.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: seen.events)

    registry.keyring.replace([(fingerprint(OPS), Caller("renamed", frozenset({"read", "write"})))])
    await registry.post("web-1")
    await watcher.until(lambda seen: "web-1" in seen.nodes)

    registry.keyring.replace([(fingerprint(READER), Caller("renamed", frozenset({"read"})))])

    await asyncio.wait_for(following, 60)
    assert watcher.cut_events == 0


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
async def test_a_watcher_that_falls_behind_is_cut_off(registry: InProcessRegistry) -> None:
    await registry.post("web-1")
    watcher = Watcher(registry.address)
    following = asyncio.create_task(watcher.follow())
    await watcher.until(lambda seen: seen.is_listed)

    forget_changes(registry)
    registry.components.wakeups.notify()

    await asyncio.wait_for(following, 60)
    assert len(watcher.events) == 3


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


async def test_the_end_of_the_registry_ends_a_watch() -> None:
    async with in_process_registry() as registry:
        watcher = Watcher(registry.address)
        following = asyncio.create_task(watcher.follow())
        await watcher.until(lambda seen: seen.events)
    await asyncio.wait_for(following, 60)
