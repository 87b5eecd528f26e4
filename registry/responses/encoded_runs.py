"""Encoded runs of JSON values, which answers share, and how many bytes only their readers hold."""

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16
MAX_JOINED_BYTES = 256 * 1024


class DroppedRuns:
    """The runs that were dropped from their blocks, and that answers still refer to."""

    def __init__(self) -> None:
        self.size = 0  # in bytes


class EncodedRun:
    """JSON values with commas between them, in parts, and a digest of these bytes.

    Several answers refer to one run. Once it is dropped, it counts until the last of them is gone.
    """

    __slots__ = ("_dropped", "_is_dropped", "digest", "parts", "size")

    def __init__(
        self, parts: Sequence[bytes], *, size: int, digest: bytes, dropped: DroppedRuns
    ) -> None:
        self.parts = parts
        self.size = size
        self.digest = digest
        self._dropped = dropped
        self._is_dropped = False

    def __del__(self) -> None:
        """Count it no longer."""
        if self._is_dropped:
            self._dropped.size -= self.size

    def drop(self) -> None:
        """Record that its block has changed, so that no later answer refers to it."""
        if not self._is_dropped:
            self._is_dropped = True
            self._dropped.size += self.size


class RunEncoder:
    """Joins JSON values into a run, some at a time."""

    def __init__(self, dropped: DroppedRuns) -> None:
        self._dropped = dropped
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[bytes]) -> None:
        """Add encoded values."""
        if not values:
            return
        joined = b",".join(values)
        if self._parts:
            joined = b"," + joined
        self._hash.update(joined)
        self._parts.append(joined)
        self._size += len(joined)

    def finish(self) -> EncodedRun:
        """Return the run. Small parts are joined; to join large ones would take too long."""
        is_small = self._size <= MAX_JOINED_BYTES
        parts = [b"".join(self._parts)] if is_small else self._parts
        digest = self._hash.digest()
        return EncodedRun(parts, size=self._size, digest=digest, dropped=self._dropped)
