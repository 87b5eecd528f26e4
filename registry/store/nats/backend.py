"""The place of a JetStream store, for the daemon and for the commands."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from registry.store.clock import AgeClock
from registry.store.nats import commands
from registry.store.nats.connection.bucket_address import BucketAddress
from registry.store.nats.store import JetStreamStore
from registry.store.options import NatsOptions
from registry.store.protocol import NodeStore, Observe, Restored, Row


class JetStreamBackend:
    """A StoreBackend over one bucket, which `nats://HOST[:PORT][,HOST...]/BUCKET` names."""

    def __init__(self, place: BucketAddress) -> None:
        self._place = place

    @classmethod
    def from_url(cls, url: str, options: NatsOptions) -> Self | None:
        """Return the backend that a URL names; None if it names no bucket."""
        place = BucketAddress.from_url(url, options)
        return None if place is None else cls(place)

    def __str__(self) -> str:
        return str(self._place)

    @property
    def database(self) -> Path | None:
        """Nothing: the servers have the files."""
        return None

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        """Return the store, not connected yet."""
        return JetStreamStore(place=self._place, clock=clock, observe=observe)

    def warning(self) -> str | None:
        """Return nothing: whether the servers can be reached is seen at the start."""
        return None

    def check(self) -> int | None:
        """Read and check each node; return how many, None if there is no bucket."""
        return asyncio.run(commands.check(self._place))

    def backup(self, file: Path) -> int:
        """Write all nodes to a new file; return how many. Raises StoreOpenError."""
        return asyncio.run(commands.backup(self._place, file))

    def delete(self, hostnames: Sequence[str]) -> list[str]:
        """Delete nodes, also while registries run. Raises StoreOpenError."""
        return asyncio.run(commands.delete(self._place, hostnames))

    def restore(self, file: Path) -> Restored:
        """Replace all nodes by those of a backup. Raises StoreOpenError."""
        return asyncio.run(commands.restore(self._place, file))

    def snapshot(self) -> list[Row]:
        """Return all nodes of a bucket that no registry uses. Raises StoreOpenError."""
        return asyncio.run(commands.snapshot(self._place))

    def fill(self, rows: Sequence[Row]) -> None:
        """Put these nodes into a bucket that holds no others. Raises StoreOpenError."""
        asyncio.run(commands.fill(self._place, rows))
