"""Stores in a bucket, within the test."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from dev.waiting import until
from registry.errors import StoreOpenError
from registry.store.clock import AgeClock
from registry.store.nats.ages import Rings
from registry.store.nats.applier import Applier
from registry.store.nats.backend import NatsBackend, read
from registry.store.nats.bucket import BucketAddress, ask_jetstream, stream_of
from registry.store.nats.link import connected
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations
from registry.store.nats.publisher import Publisher
from registry.store.options import NatsLogin, NatsOptions
from registry.store.protocol import NodeStore, Restored, Row
from tests.support.registry.load.load import value_of
from tests.support.registry.nats.servers import NatsCluster
from tests.support.registry.stores.conformance import Followed
from tests.support.registry.stores.used_stores import used

UNUSED_SECONDS = 60.0
T = TypeVar("T")


def backend_at(url: str, options: NatsOptions) -> NatsBackend:
    """Return the backend of a URL."""
    backend = NatsBackend.from_url(url, options)
    assert backend is not None
    return backend


async def stored_values(url: str, options: NatsOptions) -> dict[str, str]:
    """Return the value of each node in a bucket, as a `Load` writes it. Raises StoreOpenError."""
    place = BucketAddress.from_url(url, options)
    assert place is not None
    found = await read(place)
    assert found is not None
    return {row.hostname: value_of(json.loads(row.document)) for row in found.rows()}


async def edit_bucket(servers: NatsCluster, bucket: str, **settings: object) -> None:
    """Change how a bucket is kept, as `nats stream edit` does."""
    async with connected([f"nats://{servers.servers[0].address}"], NatsLogin()) as link:
        config = (await ask_jetstream(link, f"STREAM.INFO.{stream_of(bucket)}"))["config"]
        await ask_jetstream(link, f"STREAM.UPDATE.{stream_of(bucket)}", config | settings)


class Parts:
    """The parts of a store without any connection; the test says what is delivered.

    Without `follow`, the nodes are still being read.
    """

    def __init__(self, bucket: str, *, follow: bool = True) -> None:
        self.memory = Followed()
        self.publisher = Publisher(
            bucket, Uptime(AgeClock(time.monotonic)), now=asyncio.get_running_loop().time
        )
        self.operations = NodeOperations(self.publisher)
        self.revisions = self.operations.revisions
        self.rings = Rings(self.publisher.run)
        self.confirmed: list[float] = []
        self.applier = Applier(
            self.operations,
            self.rings,
            on_own=lambda: self.confirmed.append(time.monotonic()),
        )
        if follow:
            self.applier.take_rows()
            self.applier.follow(self.memory)


@asynccontextmanager
async def open_bucket(
    url: str, options: NatsOptions
) -> AsyncIterator[tuple[NodeStore, Sequence[Row]]]:
    """Open a store, and yield it with its nodes."""
    async with used(backend_at(url, options)) as opened:
        yield opened


def once_unused(act: Callable[[], T]) -> T:
    """Return what a call returns once the servers know that nobody uses the bucket any more."""

    def try_to_act() -> tuple[T] | None:
        try:
            return (act(),)
        except StoreOpenError as error:
            if "was some seconds ago" not in str(error):
                raise
            return None

    return until(try_to_act, "the bucket is unused", within=UNUSED_SECONDS)[0]


def restored(backend: NatsBackend, file: Path) -> Restored:
    """Restore a backup once nobody uses the bucket any more."""
    return once_unused(partial(backend.restore, file))
