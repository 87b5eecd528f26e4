"""What the commands do with a bucket: check, backup, delete, restore, copy."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from registry.errors import NodeTooLarge, StoreOpenError, StoreUnavailable, TooManyConflicts
from registry.store.clock import AgeClock
from registry.store.files import unused_name
from registry.store.nats.connection.api import JetStreamApi
from registry.store.nats.connection.bucket import BucketState, find_bucket
from registry.store.nats.connection.bucket_address import BucketAddress
from registry.store.nats.connection.delivery import Delivery, Message
from registry.store.nats.connection.link import NoConnection, connected
from registry.store.nats.format.loading import LoadedNodes
from registry.store.nats.format.messages import (
    FORMAT,
    NODE,
    Format,
    decode_format,
    decode_node,
    decode_written,
    hostname_of,
    is_deletion,
    row_of,
)
from registry.store.nats.store import JetStreamStore
from registry.store.protocol import Heard, HeardBefore, HeardNode, Restored, Row
from runtime.durable import new_file

BACKUP = "rollcall nodes 1"
AT_ONCE = 1000


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


class _Unfollowed:
    """No nodes in memory: a command does not need them."""

    def stored(self, row: Row) -> None:
        pass

    def deleted(self, hostname: str, *, expired: bool) -> None:
        pass

    def heard(self, heard: Sequence[Heard], *, own: bool) -> None:
        pass

    def heard_before(self, heard: Sequence[HeardBefore]) -> None:
        pass

    def row(self, hostname: str) -> Row | None:
        del hostname
        return None

    def ages(self, after: str) -> list[HeardBefore]:
        del after
        return []

    def silent(self, seconds: float) -> Iterator[tuple[HeardNode, float]]:
        del seconds
        return iter(())

    @property
    def count(self) -> int:
        return 0

    @property
    def unwritten(self) -> int:
        return 0


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
            state = await find_bucket(JetStreamApi(link), place.bucket)
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


async def check(place: BucketAddress) -> int | None:
    """Return how many nodes a bucket has, None if there is none. Raises StoreOpenError."""
    found = await read(place)
    if found is None:
        return None
    if found.faults:
        faults = ", ".join(f"{hostname!a} ({why})" for hostname, why in found.faults.items())
        raise StoreOpenError(
            f"{place} holds what no registry wrote: {faults}; it is left as it is."
            " A registry ignores it, and puts the node back when its host reports"
        )
    return len(found.rows())


async def backup(place: BucketAddress, file: Path) -> int:
    """Write all nodes to a new file; return how many. Raises StoreOpenError."""
    found = await read(place)
    if found is None:
        raise _none(place)
    rows = found.rows()
    write_backup(rows, file)
    return len(rows)


async def snapshot(place: BucketAddress) -> list[Row]:
    """Return all nodes with their ages. Raises StoreOpenError, also if a registry runs."""
    found = await read(place)
    if found is None:
        raise _none(place)
    _require_unused(place, found.users)
    return found.rows()


async def fill(place: BucketAddress, rows: Sequence[Row]) -> None:
    """Put nodes into a bucket, and make it if there is none.

    Raises StoreOpenError, also if a registry runs. The bucket may hold some of these nodes already,
    as after this broke off, and no others.
    """
    found = await read(place)
    if found is not None:
        _require_unused(place, found.users)
        wanted = {_ageless(row) for row in rows}
        if not wanted.issuperset(map(_ageless, found.rows())):
            raise StoreOpenError(
                f"{place} holds other nodes; a copy replaces nothing: name another bucket"
            )
    await _replace(place, rows)


async def delete(place: BucketAddress, hostnames: Sequence[str]) -> list[str]:
    """Delete nodes; return the hostnames that were known. Registries may run, and see it.

    Raises StoreOpenError.
    """
    if await _state(place) is None:
        raise _none(place)
    async with _opened(place) as (store, rows):
        known = {row.hostname for row in rows}
        deleted = [hostname for hostname in hostnames if hostname in known]
        await _all(place, [partial(store.delete, name, _ignore) for name in deleted])
    return deleted


async def restore(place: BucketAddress, file: Path) -> Restored:
    """Replace all nodes by those of a backup; return how many, and what holds the ones before.

    Raises StoreOpenError, also if a registry runs, or has begun before it was complete.
    """
    wanted, kept = list(read_backup(file)), None
    found = await read(place)
    if found is not None:
        _require_unused(place, found.users)
        kept = unused_name(file)
        write_backup(found.rows(), kept)
    await _replace(place, wanted)
    return Restored(len(wanted), None if kept is None else str(kept))


async def _replace(place: BucketAddress, rows: Sequence[Row]) -> None:
    """Let a bucket hold these nodes and no others, and not as current.

    If it breaks off, it can be begun again: until it is complete, and for a warm-up after that,
    registries withhold targets. Raises StoreOpenError, also if a registry runs, or has begun before
    it was complete.
    """
    async with _opened(place) as (store, held):
        state = await _state(place)
        _require_unused(place, 0 if state is None else state.consumers - 1)  # one is its own
        runs = {member.run for member in store.members}  # they have ended
        await store.withdraw()
        names = {row.hostname for row in rows}
        gone = [row.hostname for row in held if row.hostname not in names]
        await _all(
            place,
            [
                *[partial(store.delete, name, _ignore) for name in gone],
                *[partial(store.put, row, _ignore) for row in rows],
            ],
        )
        _require_none_begun(place, store, runs)


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


async def _state(place: BucketAddress) -> BucketState | None:
    try:
        async with connected(place.servers, place.options.login) as link:
            return await find_bucket(JetStreamApi(link), place.bucket)
    except NoConnection as error:
        raise StoreOpenError(f"{place} cannot be reached: {error}") from error


def _none(place: BucketAddress) -> StoreOpenError:
    return StoreOpenError(f"{place} does not exist")


def _require_unused(place: BucketAddress, users: int) -> None:
    """Raise StoreOpenError if registries use a bucket."""
    if users > 0:
        raise StoreOpenError(
            f"{place} is in use by a registry, or was some seconds ago: stop each that uses it, and"
            " wait for 10 s after one that was killed"
        )


def _require_none_begun(
    place: BucketAddress, store: JetStreamStore, before: Collection[str]
) -> None:
    """Raise StoreOpenError if a registry has written that had not `before`."""
    begun = [one.name for one in store.members if not one.own and one.run not in before]
    if begun:
        raise StoreOpenError(
            f"{place} was changed, but a registry has begun meanwhile, on {', '.join(begun)}: it"
            " may have changed what was restored; stop it, and do it again"
        )


@asynccontextmanager
async def _opened(place: BucketAddress) -> AsyncIterator[tuple[JetStreamStore, list[Row]]]:
    store = JetStreamStore(
        place=place,
        clock=AgeClock(time.monotonic),
        observe=lambda _n, _s: None,
        writes_ages=False,
    )
    try:
        loaded = await store.load()
        store.follow(_Unfollowed())
        yield store, loaded.rows
    finally:
        await store.close()


async def _all(
    place: BucketAddress, operations: Sequence[Callable[[], asyncio.Future[None]]]
) -> None:
    """Carry out operations, some at a time. Raises StoreOpenError."""
    for start in range(0, len(operations), AT_ONCE):
        futures = [operation() for operation in operations[start : start + AT_ONCE]]
        try:
            await asyncio.gather(*futures)
        except (StoreUnavailable, NodeTooLarge, TooManyConflicts) as error:
            raise StoreOpenError(f"{place} was changed in part: {error}; do it again") from error


def _ageless(row: Row) -> Row:
    return row._replace(age=0.0)


def _ignore(_error: Exception | None) -> None:
    """Do nothing: the future is waited for."""
