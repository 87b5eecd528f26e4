"""How many bytes of requests that are not complete all connections of a listener hold together."""

from collections import OrderedDict
from typing import Protocol

MAX_UNFINISHED_BYTES = 64 * 1024 * 1024


class Holder(Protocol):
    """A connection that holds bytes of a request."""

    def close_now(self, reason: str) -> None:
        """Close it without waiting for the client; the reason is counted."""


class UnfinishedRequests:
    """The bytes that clients have sent of requests that are not complete, or wait for their turn.

    Beyond ``max_bytes``, the connection whose request began first is closed, until the rest fits.
    """

    def __init__(self, max_bytes: int = MAX_UNFINISHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._total = 0
        self._held: OrderedDict[Holder, int] = OrderedDict()  # the oldest first

    def hold(self, connection: Holder, size: int) -> None:
        """Note how many bytes a connection holds now. 0 ends what it began."""
        before = self._held.pop(connection, 0) if not size else self._held.get(connection, 0)
        self._total += size - before
        if size:
            self._held[connection] = size
        while self._total > self._max_bytes:
            oldest, released = self._held.popitem(last=False)
            self._total -= released
            oldest.close_now("memory")
