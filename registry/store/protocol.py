"""What every store promises: the store itself, and how the daemon and the commands reach it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

DoneCallback = Callable[[Exception | None], None]
# Called with the operations of a batch that was made durable, and the seconds that it took.
Observe = Callable[[int, float], None]


class Row(NamedTuple):
    """A node as it is stored.

    `document` is the JSON of labels and kv, `last_update` Unix time in seconds. `age` is the
    seconds since the host was heard of, without those in which no registry ran.
    """

    hostname: str
    document: bytes
    last_update: int
    address: str
    age: float = 0.0


class Heard(NamedTuple):
    """An unchanged node was heard of: its new `last_update` and address."""

    hostname: str
    last_update: int
    address: str


class NodeStore(Protocol):
    """Keeps nodes durably. Called from one event loop.

    `put`, `delete` and `touch` return at once, with a future that is done when the operation is
    durable: it survives the end of the process and a loss of power. Operations take effect, and
    their futures are done, in the order of the calls, whatever host they are for. Many operations
    may be made durable in one go. `done` is called on the loop right before the future is done,
    with None or with the error that the future raises: StoreUnavailable, unless the row itself
    cannot be stored. Cancelling the future changes neither the operation nor the call of `done`.

    An operation that fails leaves the store as it was, and other operations do not fail with it.
    If a `done` raises an exception, the loop's exception handler gets it, and the other operations
    are finished.
    """

    async def load(self) -> list[Row]:
        """Return all nodes, sorted by hostname, in a list that is the caller's.

        Called once, first. Raises StoreOpenError.
        """

    def put(self, row: Row, done: DoneCallback) -> asyncio.Future[None]:
        """Keep a node, instead of what was known of the host; its age counts from now."""

    def touch(self, heard: Sequence[Heard], done: DoneCallback) -> asyncio.Future[None]:
        """Keep that these nodes were heard of now; those that the store lacks are ignored.

        Without any, keep that time has passed: the ages of all nodes go on from now.
        """

    def delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        """Forget a host; an unknown one is ignored."""

    @property
    def continues(self) -> bool:
        """Whether this is what the last registry here left. Known after `load`.

        False for a store that is new, was lost or was put back from a copy, until `confirm`.
        """

    async def confirm(self) -> None:
        """Keep durably that what is stored is current: later starts continue it.

        Raises StoreUnavailable.
        """

    async def close(self) -> None:
        """Finish all operations, then release everything. Later operations are StoreUnavailable."""


class Restored(NamedTuple):
    """How many nodes a store has now, and the name of what was there before, if anything was."""

    nodes: int
    kept: str | None


class StoreBackend(Protocol):
    """A place for nodes, which a URL names: how the daemon and the commands reach its store.

    `str()` returns what messages call it, such as a path.
    """

    def open(self, *, monotonic: Callable[[], float], observe: Observe) -> NodeStore:
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
