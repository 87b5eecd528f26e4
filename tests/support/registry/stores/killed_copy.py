"""`rollcall-registry copy`, killed at a chosen moment: `killed_copy.py CONFIG FROM TO MOMENT`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from registry.settings import RegistryConfiguration
from registry.store.copying import copy
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.copying.bucket import Bucket, BucketMessage, OpenBucket
from registry.store.jetstream.copying.target import BucketTarget
from registry.store.options import NatsOptions
from registry.store.protocol import CopyBackend, CopySource, CopyTarget, Snapshot, StoreName
from registry.store.snapshots import Known
from tests.support.registry.stores.killed_at_commit import kill_self


class KilledAsAgesAreWritten(BucketTarget):
    """Is killed in its last write: the bucket has the documents of the nodes, and not the ages."""

    def _ages(
        self, _nodes: Mapping[str, Known], _uptime: float, _bucket: OpenBucket
    ) -> Iterator[BucketMessage]:
        kill_self()
        yield from ()


class KilledBeforeRetirement:
    """Is killed when it has written and compared all, and registries may still use the source."""

    def __init__(self, target: CopyTarget) -> None:
        self.name = target.name
        self._target = target

    async def write(self, snapshot: Snapshot, *, final: bool) -> None:
        await self._target.write(snapshot, final=final)
        if final:
            kill_self()

    async def complete(self, snapshot: Snapshot) -> None:
        await self._target.complete(snapshot)


class KilledAfterRetirement(KilledBeforeRetirement):
    """Is killed when registries refuse the source, and the target as well."""

    async def write(self, snapshot: Snapshot, *, final: bool) -> None:
        await self._target.write(snapshot, final=final)

    async def complete(self, _snapshot: Snapshot) -> None:
        kill_self()


MOMENTS = {"before retirement": KilledBeforeRetirement, "after retirement": KilledAfterRetirement}


class KilledCopy:
    """A backend to copy into, with which the copy is killed at a moment."""

    def __init__(self, backend: CopyBackend, moment: str) -> None:
        self._backend = backend
        self._moment = moment

    def __str__(self) -> str:
        return str(self._backend)

    def copy_source(self) -> AbstractAsyncContextManager[CopySource]:
        return self._backend.copy_source()

    def copy_target(
        self, source: StoreName, *, resume: bool
    ) -> AbstractAsyncContextManager[CopyTarget]:
        if self._moment in MOMENTS:
            return self._killed(source, resume=resume)
        return killed_as_ages_are_written(str(self._backend), source, resume=resume)

    @asynccontextmanager
    async def _killed(self, source: StoreName, *, resume: bool) -> AsyncIterator[CopyTarget]:
        async with self._backend.copy_target(source, resume=resume) as target:
            yield MOMENTS[self._moment](target)


@asynccontextmanager
async def killed_as_ages_are_written(
    url: str, source: StoreName, *, resume: bool
) -> AsyncIterator[CopyTarget]:
    """Open a bucket to copy into."""
    place = BucketAddress.from_url(url, NatsOptions(accept_loss=True))
    assert place is not None
    bucket = Bucket(place, make=True)
    try:
        target = KilledAsAgesAreWritten(place, bucket)
        await target.begin(source, resume=resume)
        yield target
    finally:
        await bucket.close()


if __name__ == "__main__":
    file, old, new, moment = sys.argv[1:]
    configuration = RegistryConfiguration(Path(file))
    target = KilledCopy(configuration.store_at(new), moment)
    asyncio.run(copy(configuration.store_at(old), target, print, unused_seconds=0))
