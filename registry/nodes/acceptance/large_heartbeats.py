"""What large heartbeats may take: processor time of each host, and memory of all together."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from registry.errors import ChangesTooFast, TooManyHeartbeats
from registry.message import MAX_BODY_BYTES
from registry.nodes.acceptance.capacity import MIB
from registry.nodes.acceptance.rate_limit import RateLimit

# To decode a larger heartbeat, to encode it, or to check it, takes up to some milliseconds each.
MAX_BYTES_AT_ONCE = 48 * 1024
MAX_LARGE_BYTES = 32 * 1024 * 1024


class LargeHeartbeats:
    """Bounds what large heartbeats cost. It is asked before they are decoded.

    Each host may send this many bytes a minute: `changes_per_minute` times the largest body. A body
    with the same bytes as its last one does not count. A refused heartbeat counts as well, so that
    it is not cheaper for its sender than an accepted one. A `changes_per_minute` of 0 is no limit.
    """

    def __init__(self, *, changes_per_minute: int, monotonic: Callable[[], float]) -> None:
        self._bytes = 0
        self._rate = RateLimit(per_minute=changes_per_minute * MAX_BODY_BYTES, monotonic=monotonic)

    @contextmanager
    def room_for(self, body: bytes) -> Iterator[None]:
        """Have memory for a body while the context is open. Small ones always have it.

        Raises TooManyHeartbeats.
        """
        size = _counted_bytes(body)
        if size and self._bytes + size > MAX_LARGE_BYTES:
            raise TooManyHeartbeats(
                f"large heartbeats of {self._bytes // MIB} MiB are being taken at present; send it"
                " again soon"
            )
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size

    def take(self, hostname: str, body: bytes) -> None:
        """Count a body that may differ from the host's last one. Small ones cost nothing.

        Raises ChangesTooFast, and counts nothing, if the host has sent too many bytes.
        """
        size = _counted_bytes(body)
        seconds = self._rate.take(hostname, size) if size else 0.0
        if seconds:
            raise ChangesTooFast(
                f"{hostname} sends more than {self._rate.per_minute // MIB} MiB a minute of"
                f" different heartbeats over {MAX_BYTES_AT_ONCE // 1024} KiB"
                " (nodes.changes_per_minute x 1 MiB); one with the bytes of the last one is"
                " accepted",
                retry_after_seconds=math.ceil(seconds),
            )


def _counted_bytes(body: bytes) -> int:
    return len(body) if len(body) > MAX_BYTES_AT_ONCE else 0
