"""A bucket to copy into, which no registry uses."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from secrets import token_hex

from registry.errors import StoreOpenError
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.connection.delivery import INACTIVE_SECONDS
from registry.store.jetstream.copying.bucket import (
    CONSUMERS,
    START_SECONDS,
    Bucket,
    BucketMessage,
    OpenBucket,
    removal,
)
from registry.store.jetstream.format.ages import chunk_key, in_batches
from registry.store.jetstream.format.messages import (
    CURRENT,
    FORMAT,
    HEARD,
    Age,
    Ages,
    Current,
    Deletion,
    Format,
    HeardNodes,
    deletion_headers,
    encode,
    node_key,
    node_value,
)
from registry.store.protocol import Snapshot, StoreName
from registry.store.snapshots import (
    Known,
    another_source,
    differ,
    differences,
    known_nodes,
    moved_already,
)

# The consumer of a copy or registry that was killed is removed by the server after a while.
UNUSED_WITHIN_SECONDS = INACTIVE_SECONDS + 5
LOOK_SECONDS = 0.5


class BucketTarget:
    """A CopyTarget over a bucket.

    The uptimes in it are those of the source; but if the bucket's own was ahead, all are so by as
    much.
    """

    def __init__(self, place: BucketAddress, bucket: Bucket) -> None:
        self._place = place
        self.name = StoreName(str(place), "")
        self._bucket = bucket
        self._run = token_hex(6)
        self._numbers = count(1)
        self._ahead: float | None = None

    async def begin(self, source: StoreName, *, resume: bool) -> None:
        """Mark the bucket as an unfinished copy. Raises StoreOpenError if it cannot be one."""

        async def work(bucket: OpenBucket) -> None:
            self.name = bucket.name
            self._require_fit(bucket, source, resume=resume)
            await self._until_unused(bucket)
            mark = Format(
                by=self._by(),
                uptime=bucket.contents.uptime,
                copied_from=source.text,
                identity=source.identity,
            )
            before = bucket.contents.format
            await bucket.write([BucketMessage(FORMAT, encode(mark))])
            if (await bucket.state()).consumers > CONSUMERS:  # it has begun just now
                await bucket.write([_as_before(before)])
                raise self._used()

        await self._bucket.perform(work, patience=START_SECONDS)

    def _require_fit(self, bucket: OpenBucket, source: StoreName, *, resume: bool) -> None:
        contents = bucket.contents
        found, nodes = contents.format, len(contents.rows())
        found.require_known(self._place)
        if found.copied_from:
            if found.identity != source.identity:
                other = StoreName(found.copied_from, found.identity)
                raise StoreOpenError(another_source(self._place, other, source))
            return
        if resume:
            raise StoreOpenError(moved_already(source, self._place))
        if nodes and not found.moved_to:
            raise StoreOpenError(
                f"{self._place} holds {nodes} nodes; a copy replaces nothing: name another bucket"
            )

    async def _until_unused(self, bucket: OpenBucket) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + UNUSED_WITHIN_SECONDS
        while (await bucket.state()).consumers > CONSUMERS:
            if loop.time() > end:
                raise self._used()
            await asyncio.sleep(LOOK_SECONDS)

    def _used(self) -> StoreOpenError:
        return StoreOpenError(f"{self._place} is in use by a registry, or by another copy")

    async def write(self, snapshot: Snapshot, *, final: bool) -> None:
        """Write what differs; for the last time also when each node was heard of."""

        async def work(bucket: OpenBucket) -> None:
            if self._ahead is None:
                self._ahead = max(0.0, bucket.contents.uptime - snapshot.uptime)
            nodes, uptime = self._nodes(snapshot), self._uptime(snapshot)
            await bucket.write(list(self._documents(nodes, uptime, bucket)))
            if final:
                await bucket.write(list(self._ages(nodes, uptime, bucket)))
                # An age is ignored unless it is newer than the node, which was written with one of
                # its own. So a node that still differs is written once more.
                left = differences(nodes, _held(bucket))
                await bucket.write([self._node(nodes[name]) for name in left if name in nodes])

        await self._bucket.perform(work)
        if final:
            await self._compare(snapshot)

    def _nodes(self, snapshot: Snapshot) -> dict[str, Known]:
        return known_nodes(snapshot.rows, self._uptime(snapshot))

    def _uptime(self, snapshot: Snapshot) -> float:
        return snapshot.uptime + (self._ahead or 0.0)

    def _documents(
        self, nodes: Mapping[str, Known], uptime: float, bucket: OpenBucket
    ) -> Iterator[BucketMessage]:
        """Yield the messages of nodes that are new or changed, and of those that are gone."""
        held = _held(bucket)
        for name, known in nodes.items():
            if name not in held or held[name].row.document != known.row.document:
                yield self._node(known)
        for name in held.keys() - nodes.keys():
            deletion = Deletion(by=self._by(), uptime=uptime)
            yield BucketMessage(node_key(name), encode(deletion), deletion_headers())

    def _node(self, known: Known) -> BucketMessage:
        value = node_value(known.row, by=self._by(), uptime=round(known.heard, 3))
        return BucketMessage(node_key(known.row.hostname), value)

    def _ages(
        self, nodes: Mapping[str, Known], uptime: float, bucket: OpenBucket
    ) -> Iterator[BucketMessage]:
        """Yield messages that say when nodes were heard of, and for how long registries ran."""
        name = self._by()
        ages = [
            Age(hostname, round(nodes[hostname].heard, 3), row.last_update, row.address)
            for hostname in differences(nodes, _held(bucket))
            for row in [nodes[hostname].row]
        ]
        for number, batch in enumerate(in_batches(ages, bucket.max_value)):
            value = encode(Ages(by=name, uptime=uptime, ages=batch))
            yield BucketMessage(chunk_key(name, number), value)
        value = encode(HeardNodes(by=name, uptime=uptime, heard=[]))
        yield BucketMessage(f"{HEARD}.{self._run}.0.1", value)

    async def _compare(self, snapshot: Snapshot) -> None:
        """Read the bucket anew, and require that it holds exactly these nodes."""

        async def work(bucket: OpenBucket) -> list[str]:
            await bucket.state()
            return differences(self._nodes(snapshot), _held(bucket))

        await self._bucket.close()
        found = await self._bucket.perform(work)
        if found:
            raise StoreOpenError(differ(self._place, found))

    async def complete(self, snapshot: Snapshot) -> None:
        """Keep that the bucket is current, if its source was; then remove the mark."""

        async def work(bucket: OpenBucket) -> None:
            uptime = self._uptime(snapshot)
            current = Current(by=self._by(), uptime=uptime, created=bucket.created)
            if snapshot.continues:
                await bucket.write([BucketMessage(CURRENT, encode(current))])
            elif bucket.contents.current:
                await bucket.write([removal(CURRENT)])
            if bucket.contents.format.copied_from:
                await bucket.write([removal(FORMAT)])

        await self._bucket.perform(work)

    def _by(self) -> str:
        return f"{self._run}-{next(self._numbers)}"


def _as_before(before: Format) -> BucketMessage:
    """Return the message that puts back what the bucket said of its format."""
    return BucketMessage(FORMAT, encode(before)) if before.refusal() else removal(FORMAT)


def _held(bucket: OpenBucket) -> dict[str, Known]:
    contents = bucket.contents
    return known_nodes(contents.rows(), contents.uptime)


@asynccontextmanager
async def bucket_target(
    place: BucketAddress, source: StoreName, *, resume: bool
) -> AsyncIterator[BucketTarget]:
    """Open a bucket to copy into, and make it if there is none. Raises StoreOpenError."""
    bucket = Bucket(place, make=True)
    try:
        target = BucketTarget(place, bucket)
        await target.begin(source, resume=resume)
        yield target
    finally:
        await bucket.close()
