"""Lists as encoded JSON, kept in pieces so that only what changed is encoded again."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16
# Some 256 KiB, with nodes of a usual size.
RUNS_PER_PART = 16


class EncodedRun(NamedTuple):
    """JSON values with commas between them, and a digest of these bytes."""

    joined: bytes
    digest: bytes


class EncodedArray(NamedTuple):
    """A JSON array in pieces, each holding values with commas between them, and its digest."""

    runs: list[bytes]
    digest: bytes

    def body(self) -> bytes:
        """Return the array."""
        return b"[%b]" % b",".join(self.runs)

    def parts(self) -> list[bytes]:
        """Return the array in pieces of a good size to send."""
        parts: list[bytes] = []
        for start in range(0, len(self.runs), RUNS_PER_PART):
            parts += [b"," if parts else b"[", b",".join(self.runs[start : start + RUNS_PER_PART])]
        return [*parts, b"]"] if parts else [b"[]"]


def join_values(values: Iterable[bytes]) -> EncodedRun:
    """Join encoded values."""
    joined = b",".join(values)
    return EncodedRun(joined, blake2b(joined, digest_size=DIGEST_BYTES).digest())


def join_runs(runs: Sequence[EncodedRun]) -> EncodedArray:
    """Return the array of all runs; empty ones hold no value."""
    digest = blake2b(b"".join([run.digest for run in runs]), digest_size=DIGEST_BYTES)
    return EncodedArray([run.joined for run in runs if run.joined], digest.digest())
