"""A bucket to copy from, while registries may use it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex

from registry.errors import StoreOpenError
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.copying.bucket import (
    CONSUMERS,
    START_SECONDS,
    Bucket,
    BucketMessage,
    OpenBucket,
    removal,
)
from registry.store.jetstream.format.messages import CURRENT, FORMAT, Format, encode
from registry.store.protocol import Row, Snapshot, StoreName
from registry.store.snapshots import another_target


class BucketSource:
    """A CopySource over a bucket."""

    def __init__(self, bucket: Bucket, name: StoreName, found: Format) -> None:
        self._bucket = bucket
        self.name = name
        self._moved_to = StoreName(found.moved_to, found.identity)
        self.was_moved = bool(found.moved_to)
        self._is_taken = self._is_retired = self.was_moved
        self._by = f"{token_hex(6)}-0"

    async def users(self) -> int:
        """Return how many read the bucket; one that was killed counts for some seconds."""

        async def work(bucket: OpenBucket) -> int:
            return max(0, (await bucket.state()).consumers - CONSUMERS)

        return 0 if self.was_moved else await self._bucket.perform(work)

    async def take(self, target: StoreName) -> bool:
        """Write that the bucket is being moved, if no registry reads it; return whether none does.

        A registry that begins meanwhile sees that, and writes nothing.
        """

        async def work(bucket: OpenBucket) -> bool:
            if (await bucket.state()).consumers > CONSUMERS:
                return False
            self._is_taken = True
            await bucket.write([self._mark(bucket, target)])
            return (await bucket.state()).consumers <= CONSUMERS

        if self.was_moved:
            if self._moved_to.identity != target.identity:
                raise StoreOpenError(another_target(self.name, self._moved_to, target))
            return True
        is_taken = await self._bucket.perform(work)
        if not is_taken:
            await self.release()
        return is_taken

    def _mark(self, bucket: OpenBucket, target: StoreName) -> BucketMessage:
        uptime = bucket.contents.uptime
        mark = Format(by=self._by, uptime=uptime, moved_to=target.text, identity=target.identity)
        return BucketMessage(FORMAT, encode(mark))

    async def snapshot(self) -> Snapshot:
        """Return all nodes as of the bucket's last message."""

        async def work(bucket: OpenBucket) -> Snapshot:
            await bucket.state()
            contents = bucket.contents
            continues = contents.current == bucket.created
            return Snapshot(contents.rows(), contents.uptime, continues)

        return await self._bucket.perform(work)

    async def retire(self) -> None:
        """Leave it as it was taken: registries refuse it."""
        self._is_retired = True

    async def release(self) -> None:
        """Let registries use the bucket again, unless it was retired."""

        async def work(bucket: OpenBucket) -> None:
            if bucket.contents.format.moved_to:
                await bucket.write([removal(FORMAT)])

        if self._is_taken and not self._is_retired:
            await self._bucket.perform(work)
            self._is_taken = False


async def make_usable(place: BucketAddress, keep: Callable[[Sequence[Row]], None]) -> None:
    """Let registries use a bucket that was moved, or is an unfinished copy, but not as current.

    Before that, `keep` is called with its nodes, also if registries may use it. Raises
    StoreOpenError, also if another release has written it.
    """

    async def read(bucket: OpenBucket) -> Sequence[Row]:
        bucket.contents.format.require_known(place)
        return bucket.contents.rows()

    async def work(bucket: OpenBucket) -> None:
        if bucket.contents.format.refusal():
            if bucket.contents.current:
                await bucket.write([removal(CURRENT)])
            await bucket.write([removal(FORMAT)])

    bucket = Bucket(place, make=False)
    try:
        keep(await bucket.perform(read, patience=START_SECONDS))
        await bucket.perform(work)
    finally:
        await bucket.close()


@asynccontextmanager
async def bucket_source(place: BucketAddress) -> AsyncIterator[BucketSource]:
    """Open a bucket to copy from. Raises StoreOpenError."""

    async def read_format(bucket: OpenBucket) -> tuple[StoreName, Format]:
        return bucket.name, bucket.contents.format

    bucket = Bucket(place, make=False)
    try:
        name, found = await bucket.perform(read_format, patience=START_SECONDS)
        found.require_known(place)
        if found.copied_from:
            raise StoreOpenError(f"{place} {found.refusal()}")
        source = BucketSource(bucket, name, found)
        try:
            yield source
        finally:
            await source.release()
    finally:
        await bucket.close()
