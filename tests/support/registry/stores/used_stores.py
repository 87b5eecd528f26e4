"""Stores that a test uses as a registry does."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from registry.store.clock import AgeClock
from registry.store.protocol import NodeStore, Row, StoreBackend
from tests.support.registry.stores.conformance import Followed
from tests.support.registry.stores.sqlite_store import Batches, ignore, row

OTHER = b'{"labels":["b"],"kv":{"c":"d"}}'


class AdvancedClock:
    """Real time, and what the test adds."""

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


@asynccontextmanager
async def used(
    backend: StoreBackend, clock: AdvancedClock | None = None
) -> AsyncIterator[tuple[NodeStore, list[Row]]]:
    """Use a store as a registry does."""
    store = backend.open(clock=AgeClock(clock or AdvancedClock()), observe=Batches().observe)
    try:
        loaded = await store.load()
        store.follow(Followed())
        yield store, loaded.rows
    finally:
        await store.close()


async def continues(backend: StoreBackend) -> bool:
    """Return whether a store is what the last registry on it left."""
    store = backend.open(clock=AgeClock(AdvancedClock()), observe=Batches().observe)
    try:
        return (await store.load()).continues
    finally:
        await store.close()


async def contents(backend: StoreBackend) -> list[Row]:
    """Return all that is in a store."""
    async with used(backend) as (_, rows):
        return rows


async def fill(backend: StoreBackend, *hostnames: str) -> None:
    """Put nodes into a store."""
    async with used(backend) as (store, _):
        await store.confirm()
        await asyncio.gather(*[store.put(row(name), ignore) for name in hostnames])


def ageless(rows: list[Row]) -> list[Row]:
    """Return nodes without their ages."""
    return [one._replace(age=0.0) for one in rows]
