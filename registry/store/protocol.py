"""What every store promises: the store itself, and how the daemon and the commands reach it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from registry.store.clock import AgeClock

DoneCallback = Callable[[Exception | None], None]
# Returns why an operation is to be rejected, as others have changed the node; else None.
Guard = Callable[[], Exception | None]
# Called with the operations of a batch that was made durable, and the seconds that it took.
Observe = Callable[[int, float], None]
# Nobody can find a hostname that has the digest of a given one. Who looks for long enough finds two
# of equal digest: a start then gives both the later time, and the address that goes with it.
NAME_DIGEST_BYTES = 12

# A store that has no room for more than this may have room for what all others write.
LARGE_BYTES = 64 * 1024


def name_digest(hostname: str) -> bytes:
    """Return a digest of a hostname, by which a store may name a node in few bytes."""
    return sha256(hostname.encode()).digest()[:NAME_DIGEST_BYTES]


class Row(NamedTuple):
    """A node as it is stored.

    `document` is the JSON of labels and kv, `last_update` Unix time in seconds. `age` is the
    seconds since the host was seen, without those in which no registry ran. `is_moved` is as in
    HeardNode.
    """

    hostname: str
    document: bytes
    last_update: int
    address: str
    age: float = 0.0
    is_moved: bool = False


class HeardNode(Protocol):
    """A node that was seen: when, and from where."""

    @property
    def hostname(self) -> str:
        """Its name."""

    @property
    def name_digest(self) -> bytes:
        """The digest of its name."""

    @property
    def last_update(self) -> int:
        """The Unix time of its last heartbeat."""

    @property
    def address(self) -> str:
        """The address that it was sent from."""

    @property
    def is_moved(self) -> bool:
        """Whether the address is another one than the store has in the node's own row."""


class StorePosition(NamedTuple):
    """How far a registry has come in the order of a store that several share.

    `order` is eight hexadecimal digits, another one for another store.
    """

    order: str
    sequence: int


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A registry that shares the store: the name of its host, and of its run.

    `own` is whether it is the one that is asked. `seen_seconds` ago it wrote to the store.
    `denied` and `expected` are the digests of its lists of hosts, each empty without one.
    """

    name: str
    run: str
    own: bool
    seen_seconds: float
    denied: str = ""
    expected: str = ""


# An unchanged node was seen: its hostname, new `last_update` and address. A plain tuple takes a
# fifth of the time to make, and is of no concern to the garbage collector.
Heard = tuple[str, int, str]


class HeardBefore(NamedTuple):
    """A node was seen `age` seconds ago, with this `last_update` and address."""

    hostname: str
    last_update: int
    address: str
    age: float = 0.0


class SharedNodes(Protocol):
    """All nodes in memory, as a store needs them.

    A store that several registries share calls it in the order in which it took the changes, the
    same for each registry, in between the `done` of this registry's own operations. Other stores
    only read.
    """

    def stored(self, row: Row) -> None:
        """Take over a node that another registry stored."""

    def deleted(self, hostname: str, *, expired: bool) -> None:
        """Forget a node that another registry deleted.

        With `expired` that registry had not seen it for too long. If this one has, the node is
        kept, and is to be touched soon.
        """

    def heard(self, heard: Sequence[Heard], *, own: bool) -> None:
        """Record which nodes were seen, here (`own`) or by another registry."""

    def heard_before(self, heard: Sequence[HeardBefore]) -> None:
        """Record when nodes were last seen, as another registry knows. Each is named once."""

    def row(self, hostname: str) -> Row | None:
        """Return a node as it is in memory, with its age; None if it is unknown."""

    def ages(self, after: str) -> list[HeardBefore]:
        """Return the ages of the next nodes after a hostname, a few at a time; none at the end."""

    def silent(self, seconds: float) -> Iterator[tuple[HeardNode, float]]:
        """Yield the nodes that were not seen for so long, with their ages.

        Nodes may change in between; those that are seen meanwhile may be left out. Only one
        such iterator may be in use.
        """

    @property
    def count(self) -> int:
        """How many nodes there are."""

    @property
    def unwritten(self) -> int:
        """How many nodes were seen that `touch` was not called for since.

        It is called for those first that were seen first.
        """


class Loaded(NamedTuple):
    """What a store held at the start: all nodes, sorted by hostname, in a list for the caller.

    `continues` is whether this is what the last registry here left: False for a store that is new,
    was lost or was restored from a copy, until `confirm`.
    """

    rows: list[Row]
    continues: bool


class NodeStore(Protocol):
    """Keeps nodes durably. Called from one event loop.

    `put`, `delete` and `touch` return at once, with a future that is done when the operation is
    durable: it survives the end of the process and a loss of power. Operations on one host take
    effect, and their futures are done, in the order of the calls. Many operations may be made
    durable in one go. `done` is called on the loop right before the future is done, with None or
    with the error that the future raises: StoreUnavailable, unless the row itself cannot be stored.
    Cancelling the future changes neither the operation nor the call of `done`.

    An operation that fails leaves the store as it was, and other operations do not fail with it;
    after a time limit, the store may still take it later, unless the host has changed by then. A
    store of one registry then fails the future alone, and calls `done` once the outcome is known.
    If a `done` raises an exception, the loop's exception handler gets it, and the other operations
    are finished.
    """

    async def load(self) -> Loaded:
        """Return all nodes. Called once, first. Raises StoreOpenError."""

    def follow(self, nodes: SharedNodes) -> None:
        """Read the nodes in memory from now on. Called once, before the first operation.

        A shared store reports the changes by other registries to them, from what `load` returned
        on.
        """

    def put(self, row: Row, done: DoneCallback) -> asyncio.Future[None]:
        """Keep a node that is seen now, so that its `age` is 0.

        It replaces what was known of the host.
        """

    def touch(self, nodes: Sequence[HeardNode], done: DoneCallback) -> asyncio.Future[None]:
        """Keep that these nodes were seen now; those that the store lacks are ignored.

        Without any, keep that time has passed: the ages of all nodes go on from now.
        """

    def delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        """Forget a host; an unknown one is ignored."""

    async def confirm(self) -> None:
        """Keep durably that what is stored is current: later starts continue it.

        Raises StoreUnavailable.
        """

    async def close(self) -> None:
        """Finish all operations, then release everything. Later operations are StoreUnavailable."""

    @property
    def memory_bytes(self) -> int:
        """The estimated memory, in bytes, that the store takes for present and former hosts."""


class StoreHealth(NamedTuple):
    """How a store that several registries share is.

    `age` is the seconds for which changes by other registries may be missing, 0 if none is;
    `problem` is why, empty if none is known to be. `risk` is why a loss of power or of a server may
    lose changes, and `unchecked` of which servers that could not be seen; both may be empty.
    `continues` is as in Loaded, but of this moment.
    """

    age: float = 0.0
    problem: str = ""
    risk: str = ""
    unchecked: str = ""
    continues: bool = True


HEALTHY = StoreHealth()


@runtime_checkable
class SharedStore(NodeStore, Protocol):
    """A NodeStore that several registries may use at the same time.

    If another registry has changed the host since an operation was begun, its `guard` is asked
    again, after SharedNodes got that change. The future then also raises what the guard
    returned, or an error if other registries change the host again and again.
    """

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        """Keep a node, unless the guard rejects that."""

    def delete(
        self,
        hostname: str,
        done: DoneCallback,
        guard: Guard | None = None,
        *,
        expired: bool = False,
    ) -> asyncio.Future[None]:
        """Forget a host, unless the guard rejects that.

        One that has `expired` is kept if another registry has changed it meanwhile.
        """

    @property
    def is_current(self) -> bool:
        """Whether all changes are in memory that were durable a second ago.

        A registry that is not current must not answer from memory that a heartbeat changes
        nothing: it has to `catch_up`.
        """

    async def catch_up(self) -> None:
        """Wait until all changes are in memory that were durable before the call.

        Raises StoreUnavailable.
        """

    @property
    def health(self) -> StoreHealth:
        """How the store is now."""

    @property
    def members(self) -> Sequence[Member]:
        """The registries that have written to the store lately."""

    def announce(self, *, denied: str, expected: str) -> None:
        """Tell the other registries the digests of the lists of hosts, also before `load`."""

    @property
    def position(self) -> StorePosition | None:
        """Up to which of the store's changes are in memory; None if it has no order."""


def as_shared(store: NodeStore) -> SharedStore | None:
    """Return a store if several registries can use it; else None."""
    return store if isinstance(store, SharedStore) else None


class Restored(NamedTuple):
    """How many nodes a store has now, and the name of what was there before, if anything was."""

    nodes: int
    kept: str | None


class StoreBackend(Protocol):
    """A place for nodes, which a URL names: how the daemon and the commands reach its store.

    `str()` returns what messages call it, such as a path.
    """

    @property
    def database(self) -> Path | None:
        """The file of the store, None if it is not on this host."""

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        """Return the store, not loaded yet; make it if there is none. Raises StoreOpenError."""

    def warning(self) -> str | None:
        """Return what would stop `open` on this machine, as far as can be seen; or None."""

    def check(self) -> int | None:
        """Read and check everything; return the number of nodes, None if there is no store yet.

        The store may be in use. Raises StoreOpenError.
        """

    def backup(self, file: Path) -> int:
        """Write a consistent copy to a new file, whole or not at all; return how many nodes it has.

        The store may be in use. Raises StoreOpenError.
        """

    def delete(self, hostnames: Sequence[str]) -> list[str]:
        """Delete nodes durably, all or none; return the hostnames that were known.

        Raises StoreOpenError, also if the store is in use.
        """

    def restore(self, file: Path) -> Restored:
        """Replace the store by a backup; what was there before is kept under another name.

        At any moment there is a whole store. Raises StoreOpenError, also if it is in use.
        """

    def snapshot(self) -> list[Row]:
        """Return all nodes, sorted by hostname, with their ages.

        Raises StoreOpenError, also if a registry uses the store.
        """

    def fill(self, rows: Sequence[Row]) -> None:
        """Make a store of these nodes; registries that start on it warm up.

        Raises StoreOpenError, also if the store is in use or holds other nodes.
        """
