"""The filters of GET /nodes; a node is listed if all of them hold."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from registry.nodes.directory.directory import END_OF_LABELS, Entry

KV_OFFSET = len(END_OF_LABELS) - 1

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Whole labels, prefixes of labels, and pairs of kv; `max_age` is in seconds.

    With `stages`, only nodes in one of these pass.
    """

    labels: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    kv: tuple[tuple[str, str], ...] = ()
    max_age: float | None = None
    stages: frozenset[int] | None = None

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        own = len(self.labels) + len(self.prefixes) + len(self.kv)
        return own + sum(each is not None for each in (self.max_age, self.stages))

    def predicate(self, now: float) -> Callable[[Entry], bool]:
        """Return a function that tells whether a node passes at the monotonic time `now`.

        Of the nodes that are `in_state`: among a hundred thousand, a call for each takes long.
        """
        max_age = math.inf if self.max_age is None else self.max_age
        matches = self.matcher()
        return lambda entry: (
            now - entry.heard <= max_age and matches(entry.head, entry.labels_start())
        )

    def in_state(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return those that are in one of the stages, if these are given."""
        if self.stages is None:
            return entries
        return [entry for entry in entries if entry.stage in self.stages]

    def matcher(self) -> Callable[[bytes, int], bool]:
        """Return a function that tells whether an encoded node has the labels and the kv.

        Its arguments are an entry's `head` and `labels_start`. It looks for encoded values, and
        decodes nothing. Within a text, a quotation mark is encoded with a backslash before it. So
        an encoded value right behind a bracket or a comma is a value, and never a part of one.
        """
        labels = [_encode(label) for label in self.labels]
        labels += [_encode(prefix)[:-1] for prefix in self.prefixes]
        pairs = [b"%b:%b" % (_encode(key), _encode(value)) for key, value in self.kv]
        if not labels and not pairs:
            return lambda _head, _start: True

        def matches(head: bytes, start: int) -> bool:
            end = head.index(END_OF_LABELS, start)
            return all(_has(head, start, end, label) for label in labels) and all(
                _has(head, end + KV_OFFSET, len(head), pair) for pair in pairs
            )

        return matches


def _has(head: bytes, start: int, end: int, value: bytes) -> bool:
    """Return whether the array or object between `start` and `end` has an encoded value."""
    return head.startswith(value, start + 1) or head.find(b",%b" % value, start, end) >= 0
