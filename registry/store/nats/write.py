"""A write to the bucket, and its outcome."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Stamp(NamedTuple):
    """The number of a write, and what its value says: by whom, and at which uptime."""

    number: int
    by: str
    uptime: float


class Outcome(Protocol):
    """What becomes of a write. Exactly one of `delivered` and `failed` is called, once."""

    def delivered(self, sequence: int) -> None:
        """Record that the bucket has it, under this sequence."""

    def failed(self, error: Exception) -> None:
        """Record that it has failed, or that its outcome is unknown."""

    def conflicted(self, write: "Write", actual: int) -> None:
        """Record that the key has another last sequence; the write waits for `resend`."""


class Write:
    """A message to the bucket; with `expected`, only if that is the last sequence of its key.

    `unanswered` is how often it was sent without an answer that it had no effect. `sequence` is
    the one of its acknowledgement, 0 without any.
    """

    __slots__ = (
        "began",
        "expected",
        "first_sent",
        "headers",
        "key",
        "number",
        "outcome",
        "sent",
        "sequence",
        "unanswered",
        "value",
    )

    def __init__(
        self,
        key: str,
        value: bytes,
        outcome: Outcome,
        *,
        number: int,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self.outcome = outcome
        self.number = number
        self.expected: int | None = None
        self.headers = dict(headers or {})
        self.began = self.first_sent = self.sent = 0.0
        self.sequence = 0
        self.unanswered = 0
