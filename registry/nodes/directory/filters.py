"""The filters of GET /nodes; a node is listed if all of them hold."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from registry.nodes.directory.directory import END_OF_LABELS, Entry

KV_OFFSET = len(END_OF_LABELS) - 1
# What may follow the end of a text in JSON; an empty text is before such a character, too.
STRUCTURE = ("", ",", ":", "]", "}")

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

    def chooser(self, now: float) -> Callable[[list[Entry]], list[Entry]]:
        """Return a function that returns those nodes of a list that pass at the monotonic time.

        A whole label is a value in the only array of a node, so it is found without a call for each
        node, which would take long among a hundred thousand. This holds unless its own text begins
        like what stands between values.
        """
        plain = [label for label in self.labels if label[:1] not in STRUCTURE]
        marks = [_marks(_encode(label)) for label in plain]
        others = replace(self, labels=tuple(set(self.labels).difference(plain)))
        matches = others.matcher() if others.labels or others.prefixes or others.kv else None
        stages, max_age = self.stages, self.max_age

        def choose(entries: list[Entry]) -> list[Entry]:
            if stages is not None:
                entries = [entry for entry in entries if entry.stage in stages]
            if max_age is not None:
                entries = [entry for entry in entries if now - entry.heard <= max_age]
            for middle, first, last, only in marks:
                entries = [
                    entry
                    for entry in entries
                    if middle in (head := entry.head)
                    or first in head
                    or last in head
                    or only in head
                ]
            if matches is not None:
                entries = [entry for entry in entries if matches(entry.head, entry.labels_start())]
            return entries

        return choose

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


def _marks(label: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return how an encoded label stands within, at the start and end of, and alone in an array."""
    return b",%b," % label, b"[%b," % label, b",%b]" % label, b"[%b]" % label
