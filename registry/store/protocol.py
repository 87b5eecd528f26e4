"""Where nodes outlive the process: what every store promises."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

DoneCallback = Callable[[Exception | None], None]


class Row(NamedTuple):
    """A node as it is kept.

    `document` is the encoded labels and kv, `age` the seconds since the host was heard of, not
    counting those in which no registry ran.
    """

    hostname: str
    document: bytes
    last_update: int
    address: str
    age: float = 0.0


class Heard(NamedTuple):
    """That an unchanged node was heard of."""

    hostname: str
    last_update: int
    address: str


class NodeStore(Protocol):
    """Keeps nodes. Called from one event loop.

    Each of `put`, `delete` and `touch` returns at once, with a future that is done once the
    operation is durable: it survives the end of the process and of the machine's power. Operations
    take effect, and their futures are done, in the order of the calls, whatever host they are for.
    Many are made durable in one go. `done` is called, on the loop, right before the future is
    done: with None or with the StoreUnavailable that the future raises. Cancelling the future
    changes neither the operation nor the call of `done`.

    An operation that fails leaves the store as it was; others of the same batch do not suffer.
    """

    async def load(self) -> Sequence[Row]:
        """Give all nodes, by hostname; once, before anything else. Raises StartError."""

    def put(self, row: Row, done: DoneCallback) -> asyncio.Future[None]:
        """Keep a node, instead of what was known of the host; its age counts from now."""

    def touch(self, heard: Sequence[Heard], done: DoneCallback) -> asyncio.Future[None]:
        """Keep that these nodes were heard of just now; those that are not kept are passed over."""

    def delete(self, hostname: str, done: DoneCallback) -> asyncio.Future[None]:
        """Forget a host."""

    async def close(self) -> None:
        """Finish what was begun, then let go of everything."""
