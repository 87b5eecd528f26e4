"""The place of a store in NATS, for the daemon and for the commands."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from registry.errors import NodeTooLarge, StoreOpenError, StoreUnavailable, TooManyConflicts
from registry.store.clock import AgeClock
from registry.store.files import unused_name
from registry.store.nats.bucket import BucketAddress, BucketState, find_bucket
from registry.store.nats.delivery import Delivery, Message
from registry.store.nats.format import (
    FORMAT,
    NODE,
    Format,
    LoadedNodes,
    decode_format,
    decode_node,
    decode_written,
    hostname_of,
    is_deletion,
    row_of,
)
from registry.store.nats.link import NoConnection, connected
from registry.store.nats.store import NatsStore
from registry.store.options import NatsOptions
from registry.store.protocol import NodeStore, Observe, Restored, Row
from runtime.durable import new_file

BACKUP = "rollcall nodes 1"
AT_ONCE = 1000


class NatsBackend:
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
        return NatsStore(place=self._place, clock=clock, observe=observe)

    def warning(self) -> str | None:
        """Return nothing: whether the servers can be reached is seen at the start."""
        return None

    def check(self) -> int | None:
        """Read and check each node; return how many, None if there is no bucket."""
        found = asyncio.run(read(self._place))
        if found is None:
            return None
        if found.faults:
            faults = ", ".join(f"{hostname!a} ({why})" for hostname, why in found.faults.items())
            raise StoreOpenError(
                f"{self} holds what no registry wrote: {faults}; it is left as it is."
                " A registry ignores it, and puts the node back when its host reports"
            )
        return len(found.rows())

    def backup(self, file: Path) -> int:
        """Write all nodes to a new file; return how many. Raises StoreOpenError."""
        rows = self._contents().rows()
        write_backup(rows, file)
        return len(rows)

    def delete(self, hostnames: Sequence[str]) -> list[str]:
        """Delete nodes, also while registries run, which see it. Raises StoreOpenError."""
        return asyncio.run(self._delete(hostnames))

    def restore(self, file: Path) -> Restored:
        """Replace all nodes by those of a backup, and keep those of before in another file.

        Raises StoreOpenError, also if a registry runs, or has begun before it was complete.
        """
        wanted, kept = list(read_backup(file)), None
        found = asyncio.run(read(self._place))
        if found is not None:
            self._require_unused(found.users)
            kept = unused_name(file)
            write_backup(found.rows(), kept)
        asyncio.run(self._replace(wanted))
        return Restored(len(wanted), None if kept is None else str(kept))

    def snapshot(self) -> list[Row]:
        """Return all nodes of a bucket that no registry uses. Raises StoreOpenError."""
        found = self._contents()
        self._require_unused(found.users)
        return found.rows()

    def fill(self, rows: Sequence[Row]) -> None:
        """Put these nodes into a bucket, and make it if there is none.

        Raises StoreOpenError, also if a registry runs. The bucket may hold some of these nodes
        already, as after this was interrupted, and no others.
        """
        found = asyncio.run(read(self._place))
        if found is not None:
            self._require_unused(found.users)
            wanted = {row._replace(age=0.0) for row in rows}
            if not wanted.issuperset(row._replace(age=0.0) for row in found.rows()):
                raise StoreOpenError(
                    f"{self} holds other nodes; a copy replaces nothing: name another bucket"
                )
        asyncio.run(self._replace(rows))

    def _contents(self) -> "BucketContents":
        found = asyncio.run(read(self._place))
        if found is None:
            raise StoreOpenError(f"{self} does not exist")
        return found

    async def _delete(self, hostnames: Sequence[str]) -> list[str]:
        if await self._state() is None:
            raise StoreOpenError(f"{self} does not exist")
        async with self._opened() as (store, rows):
            known = {row.hostname for row in rows}
            deleted = [hostname for hostname in hostnames if hostname in known]
            await self._finish_all([partial(store.delete, name, _ignore) for name in deleted])
        return deleted

    async def _replace(self, rows: Sequence[Row]) -> None:
        """Let a bucket hold these nodes and no others, and not as current.

        If it is interrupted, it can be begun again: until it is complete, and for a warm-up after
        that, registries withhold targets. Raises StoreOpenError, also if a registry runs, or has
        begun before it was complete.
        """
        async with self._opened() as (store, held):
            state = await self._state()
            self._require_unused(0 if state is None else state.consumers - 1)  # one is its own
            runs = {member.run for member in store.members}  # they have ended
            await store.withdraw()
            names = {row.hostname for row in rows}
            gone = [row.hostname for row in held if row.hostname not in names]
            await self._finish_all(
                [
                    *[partial(store.delete, name, _ignore) for name in gone],
                    *[partial(store.put, row, _ignore) for row in rows],
                ]
            )
            self._require_none_begun(store, runs)

    async def _state(self) -> BucketState | None:
        place = self._place
        try:
            async with connected(place.servers, place.options.login) as link:
                return await find_bucket(link, place.bucket)
        except NoConnection as error:
            raise StoreOpenError(f"{self} cannot be reached: {error}") from error

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[NatsStore, list[Row]]]:
        clock = AgeClock(time.monotonic)
        store = NatsStore(place=self._place, clock=clock, observe=lambda _n, _s: None)
        try:
            loaded = await store.load()
            store.follow(None)
            yield store, loaded.rows
        finally:
            await store.close()

    async def _finish_all(self, operations: Sequence[Callable[[], asyncio.Future[None]]]) -> None:
        """Execute operations, some at a time. Raises StoreOpenError."""
        for start in range(0, len(operations), AT_ONCE):
            futures = [operation() for operation in operations[start : start + AT_ONCE]]
            try:
                await asyncio.gather(*futures)
            except (StoreUnavailable, NodeTooLarge, TooManyConflicts) as error:
                raise StoreOpenError(f"{self} was changed in part: {error}; do it again") from error

    def _require_unused(self, users: int) -> None:
        """Raise StoreOpenError if registries use the bucket."""
        if users > 0:
            raise StoreOpenError(
                f"{self} is in use by a registry, or was some seconds ago: stop each that uses it,"
                " and wait for 10 s after one that was killed"
            )

    def _require_none_begun(self, store: NatsStore, before: Collection[str]) -> None:
        """Raise StoreOpenError if a registry has written that had not `before`."""
        begun = [one.name for one in store.members if not one.own and one.run not in before]
        if begun:
            raise StoreOpenError(
                f"{self} was changed, but a registry has begun meanwhile, on {', '.join(begun)}:"
                " it may have changed what was restored; stop it, and do it again"
            )


class BucketContents:
    """The nodes of a bucket, and how it is written; what no registry wrote is no node.

    `faults` says why, by the hostname. `users` is how many registries use the bucket, or did so
    some seconds ago.
    """

    def __init__(self) -> None:
        self.users = 0
        self.format = Format()
        self.faults: dict[str, str] = {}
        self._sequences: dict[str, int] = {}
        self._nodes = LoadedNodes(lambda hostname: self._sequences.get(hostname, 0))

    def rows(self) -> list[Row]:
        """Return all nodes, sorted, with their ages."""
        return self._nodes.rows()

    def take(self, message: Message) -> None:
        """Take the next message."""
        if message.key == FORMAT:
            self.format = decode_format(message.data, message.headers)
        elif message.key.startswith(f"{NODE}."):
            self._take_node(message, hostname_of(message.key))
        else:
            with suppress(msgspec.MsgspecError):
                self._saw(message)
                self._nodes.heard(message)

    def _take_node(self, message: Message, hostname: str) -> None:
        self._sequences[hostname] = message.sequence
        self.faults.pop(hostname, None)
        self._nodes.deleted(hostname)
        try:
            self._saw(message)
            if not is_deletion(message.headers):
                node = decode_node(message.data)
                self._nodes.stored(row_of(hostname, node), node.uptime)
        except msgspec.MsgspecError as error:
            self.faults[hostname] = str(error)

    def _saw(self, message: Message) -> None:
        self._nodes.uptime = max(self._nodes.uptime, decode_written(message.data).uptime)


async def read(place: BucketAddress) -> BucketContents | None:
    """Read a bucket, which registries may use; None if there is none. Raises StoreOpenError."""
    contents = BucketContents()
    try:
        async with connected(place.servers, place.options.login) as link:
            state = await find_bucket(link, place.bucket)
            if state is None:
                return None
            contents.users = state.consumers
            delivery = Delivery(link, place.bucket, contents.take)
            await delivery.begin(1)
            await delivery.until_passed(state.last)  # the server that delivers may lag behind
            await delivery.end()
    except NoConnection as error:
        raise StoreOpenError(f"{place} cannot be reached: {error}") from error
    contents.format.require_known(place)
    return contents


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a backup."""

    format: str
    nodes: int


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A node in a backup."""

    hostname: str
    last_update: int
    address: str
    age: float
    node: msgspec.Raw


def write_backup(rows: Sequence[Row], file: Path) -> None:
    """Write nodes to a new file, whole or not at all. Raises StoreOpenError."""
    if file.exists():
        raise StoreOpenError(f"{file} exists; a backup replaces nothing")
    encode = msgspec.json.encode
    try:
        with new_file(file) as draft, draft.open("wb") as out:
            out.write(encode(_Head(BACKUP, len(rows))) + b"\n")
            for row in rows:
                document = msgspec.Raw(row.document)
                line = _Line(row.hostname, row.last_update, row.address, row.age, document)
                out.write(encode(line) + b"\n")
    except OSError as error:
        raise StoreOpenError(f"{file} cannot be written: {error}") from error


def read_backup(file: Path) -> Iterator[Row]:
    """Yield the nodes of a backup. Raises StoreOpenError, also if it is not complete."""
    decoder = msgspec.json.Decoder(_Line)
    found = 0
    try:
        with file.open("rb") as lines:
            head = msgspec.json.decode(next(lines, b""), type=_Head)
            if head.format != BACKUP:
                raise StoreOpenError(f"{file} is of another version: {head.format!a}")
            for text in lines:
                line = decoder.decode(text)
                found += 1
                document = bytes(line.node)
                yield Row(line.hostname, document, line.last_update, line.address, line.age)
    except OSError as error:
        raise StoreOpenError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise StoreOpenError(f"{file} is no backup of a bucket: {error}") from error
    if found != head.nodes:
        raise StoreOpenError(f"{file} is not complete: {found} of {head.nodes} nodes")


def _ignore(_error: Exception | None) -> None:
    """Do nothing: the future is waited for."""
