"""Encoded runs of JSON values, which answers share, and how many bytes only their readers hold."""

from collections.abc import Sequence
from hashlib import sha256

DIGEST_BYTES = 16
MAX_JOINED_BYTES = 256 * 1024


class DroppedRuns:
    """The runs that were dropped from their blocks, and that answers still refer to."""

    def __init__(self) -> None:
        self.size = 0  # in bytes


class EncodedRun:
    """JSON values with commas between them, in parts, and the digests of the values.

    Several answers refer to one run. Once it is dropped, it counts until the last of them is gone.
    """

    __slots__ = ("_dropped", "_is_dropped", "digests", "parts", "size")

    def __init__(
        self, parts: Sequence[bytes], *, size: int, digests: bytes, dropped: DroppedRuns
    ) -> None:
        self.parts = parts
        self.size = size
        self.digests = digests
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
    """Joins JSON values into a run, some at a time.

    Each value has a digest of its own. So the digest of an array, made of those of its values, does
    not depend on where the array is cut into runs, and one changed value costs one new run.
    """

    def __init__(self, dropped: DroppedRuns) -> None:
        self._dropped = dropped
        self._digests: list[bytes] = []
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[bytes]) -> None:
        """Add encoded values."""
        if not values:
            return
        joined = b",".join(values)
        if self._parts:
            joined = b"," + joined
        self._digests += [sha256(value).digest()[:DIGEST_BYTES] for value in values]
        self._parts.append(joined)
        self._size += len(joined)

    def finish(self) -> EncodedRun:
        """Return the run. Small parts are joined; to join large ones would take too long."""
        is_small = self._size <= MAX_JOINED_BYTES
        parts = [b"".join(self._parts)] if is_small else self._parts
        digests = b"".join(self._digests)
        return EncodedRun(parts, size=self._size, digests=digests, dropped=self._dropped)
