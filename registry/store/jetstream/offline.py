"""What the commands do with a bucket: check, backup, delete, restore."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from registry.errors import NodeTooLarge, StoreOpenError, StoreUnavailable, TooManyConflicts
from registry.store.clock import AgeClock
from registry.store.files.durable import rename_durably
from registry.store.jetstream.connection.api import JetStreamApi
from registry.store.jetstream.connection.bucket import BucketState, find_bucket
from registry.store.jetstream.connection.bucket_address import BucketAddress
from registry.store.jetstream.connection.delivery import Delivery, Message
from registry.store.jetstream.connection.link import NoConnection, connected
from registry.store.jetstream.copying.source import bucket_source, make_usable
from registry.store.jetstream.format.messages import (
    FORMAT,
    NODE,
    Format,
    decode_format,
    decode_node,
    hostname_of,
    is_deletion,
    row_of,
)
from registry.store.jetstream.store import JetStreamStore
from registry.store.protocol import Heard, HeardBefore, HeardNode, Restored, Row

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


class _Check:
    """What there is to say of a bucket, once all of its messages were taken."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.faults: list[str] = []
        self.format = Format()

    def take(self, message: Message) -> None:
        """Take the next message."""
        if message.key == FORMAT:
            self.format = decode_format(message.data, message.headers)
        elif message.key.startswith(f"{NODE}."):
            self._take_node(message)

    def _take_node(self, message: Message) -> None:
        hostname = hostname_of(message.key)
        self.nodes.discard(hostname)
        if is_deletion(message.headers):
            return
        try:
            row_of(hostname, decode_node(message.data))
        except msgspec.MsgspecError as error:
            self.faults.append(f"{hostname!a} ({error})")
        self.nodes.add(hostname)


async def check(place: BucketAddress) -> int | None:
    """Return how many nodes a bucket has, None if there is none. Raises StoreOpenError."""
    found = _Check()
    try:
        async with connected(place.servers, place.options.login) as link:
            if await find_bucket(JetStreamApi(link), place.bucket) is None:
                return None
            delivery = Delivery(link, place.bucket, found.take)
            await delivery.begin(1)
            await delivery.until_caught_up()
            await delivery.end()
    except NoConnection as error:
        raise StoreOpenError(f"{place} cannot be reached: {error}") from error
    found.format.require_usable(place)
    if found.faults:
        raise StoreOpenError(
            f"{place} holds what no registry wrote: {', '.join(found.faults)}; it is left as it is."
            " A registry ignores it, and puts the node back when its host reports"
        )
    return len(found.nodes)


async def backup(place: BucketAddress, file: Path) -> int:
    """Write all nodes to a new file, also of a bucket that was moved; return how many.

    Raises StoreOpenError.
    """
    async with bucket_source(place) as source:
        rows = (await source.snapshot()).rows
    write_backup(rows, file)
    return len(rows)


async def delete(place: BucketAddress, hostnames: Sequence[str]) -> list[str]:
    """Delete nodes; return the hostnames that were known. Registries may run, and see it.

    Raises StoreOpenError.
    """
    await _require_bucket(place)
    async with _opened(place) as (store, rows):
        known = {row.hostname for row in rows}
        deleted = [hostname for hostname in hostnames if hostname in known]
        await _all(place, [partial(store.delete, name, _ignore) for name in deleted])
    return deleted


async def restore(place: BucketAddress, file: Path) -> Restored:
    """Replace all nodes by those of a backup; return how many, and what holds the ones before.

    Raises StoreOpenError, also if a registry runs, or has begun before it was complete. If it
    breaks off, it can be begun again: until it is complete, and for a warm-up after that,
    registries withhold targets. A bucket that was moved, or is an unfinished copy, is used again.
    """
    wanted = list(read_backup(file))
    state = await _state(place)
    _require_unused(place, state)
    kept = None if state is None else _unused(file)
    if kept is not None:
        await make_usable(place, partial(write_backup, file=kept))
    async with _opened(place) as (store, rows):
        _require_unused(place, await _state(place), own=1)
        runs = {member.run for member in store.members}  # they have ended
        await store.withdraw()
        names = {row.hostname for row in wanted}
        gone = [row.hostname for row in rows if row.hostname not in names]
        await _all(
            place,
            [
                *[partial(store.delete, name, _ignore) for name in gone],
                *[partial(store.put, row, _ignore) for row in wanted],
            ],
        )
        _require_none_begun(place, store, runs)
    return Restored(len(wanted), None if kept is None else str(kept))


def write_backup(
    rows: Sequence[Row],
    file: Path,
    *,
    rename_durably: Callable[[Path, Path], None] = rename_durably,
) -> None:
    """Write nodes to a new file, whole or not at all. Raises StoreOpenError."""
    if file.exists():
        raise StoreOpenError(f"{file} exists; a backup replaces nothing")
    draft = file.with_name(f"{file.name}.{os.getpid()}.new")
    encode = msgspec.json.encode
    try:
        with draft.open("xb") as out:
            draft.chmod(0o600)
            out.write(encode(_Head(BACKUP, len(rows))) + b"\n")
            for row in rows:
                document = msgspec.Raw(row.document)
                line = _Line(row.hostname, row.last_update, row.address, row.age, document)
                out.write(encode(line) + b"\n")
        rename_durably(draft, file)
    except OSError as error:
        raise StoreOpenError(f"{file} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


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


async def _require_bucket(place: BucketAddress) -> None:
    if await _state(place) is None:
        raise StoreOpenError(f"{place} does not exist")


def _require_unused(place: BucketAddress, state: BucketState | None, *, own: int = 0) -> None:
    """Raise StoreOpenError if a bucket has more consumers than those of this command."""
    if state is not None and state.consumers > own:
        raise StoreOpenError(f"{place} is in use by a registry, or was some seconds ago")


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
        rows = await store.load()
        store.follow(_Unfollowed())
        yield store, rows
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


def _unused(file: Path) -> Path:
    """Return an unused name beside a file."""
    name, number = f"{file.name}.before-restore", 1
    while file.with_name(name).exists():
        number += 1
        name = f"{file.name}.before-restore.{number}"
    return file.with_name(name)


def _ignore(_error: Exception | None) -> None:
    """Do nothing: the future is waited for."""
