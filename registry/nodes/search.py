"""Which nodes are selected: filters, and search in their texts, for which case does not matter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec

from registry.nodes.directory import END_OF_LABELS, HEAD_BYTES, TAIL_BYTES, KnownNode
from registry.responses.blocks import Block, BlockText
from registry.responses.slices import Steps

KV_OFFSET = len(END_OF_LABELS) - 1
# What may follow the end of a text in JSON; an empty text is before such a character, too.
AFTER_TEXT = ("", ",", ":", "]", "}")

_encode = msgspec.json.encode
# To make the text of neighbours of this size takes about a millisecond. Of larger ones, none is
# made.
MAX_JOINED_BYTES = 256 * 1024
# Larger texts are not kept, so that they take little beside the nodes themselves.
MAX_KEPT_CHARACTERS = 64 * 1024
# By how much a text may grow, since texts that nodes no longer have stay in it.
MAX_GROWTH = 1.25
# Searching nodes of this size one by one takes about half a millisecond.
MAX_BYTES_AT_ONCE = 64 * 1024
# The JSON of a node around its texts. Within a text, a quotation mark has a backslash before it.
BETWEEN_TEXTS = b'","'
BEGIN, END = HEAD_BYTES - len('",'), -(TAIL_BYTES + len("}"))
# What is left of texts whose own characters look like what is between texts: a comma or a colon
# alone, or after a quotation mark at the end. Such nodes are decoded.
AMBIGUOUS = (b'":\n', b'":[\n', b'\n:"', b'{":":', b"\\\n", b'\\":"')
STRUCTURE = (('labels":[', ""), ('],"kv":{', "\n"), ('":"', ":"))


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

    @property
    def is_lasting(self) -> bool:
        """Whether a node passes until its labels or kv change."""
        return self.max_age is None and self.stages is None

    def chooser(self, now: float) -> Callable[[list[KnownNode]], list[KnownNode]]:
        """Return a function that returns those nodes of a list that pass at the monotonic time.

        A whole label is a value in the only array of a node, so it is found without a call for each
        node, which would take long among a hundred thousand. This holds unless its own text begins
        like what stands between values.
        """
        plain = [label for label in self.labels if label[:1] not in AFTER_TEXT]
        marks = [_marks(_encode(label)) for label in plain]
        others = replace(self, labels=tuple(set(self.labels).difference(plain)))
        matches = others.matcher() if others.labels or others.prefixes or others.kv else None
        stages, max_age = self.stages, self.max_age

        def choose(entries: list[KnownNode]) -> list[KnownNode]:
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
        """Return a function that says whether an encoded node has the labels and the kv.

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


class TextSearch:
    """Finds the nodes of which a text is part, in whichever case.

    Neighbours in the directory have many texts in common, so they keep one text in which each of
    theirs stands once. Where that does not have what is searched for, no node does. The texts of
    a node that has changed are added to it; those that it had before stay until it is made anew.
    `examined` is how many nodes were looked at one by one, which takes most of the time.
    """

    def __init__(self, text: str) -> None:
        self.examined = 0
        self._text = text.casefold()
        self._encoded = _encode(self._text)[1:-1].decode()

    def found(self, entries: Sequence[KnownNode]) -> Steps[Sequence[KnownNode]]:
        """Return those of some neighbours in one block that have the text."""
        text = text_of(entries[0].block)
        if text is not None and self._encoded not in text:
            return ()
        self.examined += len(entries)
        found: list[KnownNode] = []
        scanned = 0
        for entry in entries:
            scanned += len(entry.head)
            if scanned > MAX_BYTES_AT_ONCE:
                scanned = 0
                yield
            if (yield from self._is_in(entry)):
                found.append(entry)
        return found

    def _is_in(self, entry: KnownNode) -> Steps[bool]:
        texts = _split([entry.head])
        some: list[bytes] = []
        size = 0
        for text in texts:
            some.append(text)
            size += len(text)
            if size > MAX_BYTES_AT_ONCE:
                if self._may_be_in(some):
                    break
                some, size = [], 0
                yield
        else:
            if not self._may_be_in(some):
                return False
        # What was found may be part of an escape, such as the n of a line break.
        is_plain = b"\\" not in entry.head and _joined(some) is not None
        return is_plain or (yield from self._is_in_decoded(entry))

    def _may_be_in(self, texts: Iterable[bytes]) -> bool:
        joined = _joined(texts)
        return joined is None or self._encoded in joined

    def _is_in_decoded(self, entry: KnownNode) -> Steps[bool]:
        yield
        node = entry.node()
        yield
        scanned = 0
        pairs = (f"{key}:{value}" for key, value in node.kv.items())
        for text in chain([node.hostname], node.labels, pairs):
            if self._text in text.casefold():
                return True
            scanned += len(text)
            if scanned > MAX_BYTES_AT_ONCE:
                scanned = 0
                yield
        return False


def prepare(blocks: Iterable[Block[KnownNode]]) -> Iterator[None]:
    """Make the texts of blocks that have none, or not of all nodes, in steps."""
    for block in blocks:
        if block.text is None or block.text.changed:
            text_of(block)
        yield


def text_of(block: Block[KnownNode] | None) -> str | None:
    """Return the texts of all nodes of a block, each once; None if they are large."""
    if block is None:
        return None
    known = block.text
    if known is not None and known.changed:
        known = block.text = _with_changed(known)
    if known is not None and known.text is not None:
        return known.text
    text = _text([entry.head for entry in block.items])
    if text is not None and len(text) <= MAX_KEPT_CHARACTERS:
        block.text = BlockText(text, max_size=int(len(text) * MAX_GROWTH))
    else:
        block.text = BlockText(None)
    return text


def _with_changed(known: BlockText[KnownNode]) -> BlockText[KnownNode] | None:
    """Return a text with those of the nodes that have changed; None if it has no room for them."""
    added = _text([entry.head for entry in known.changed])
    if added is None or known.text is None:
        return None
    lines = set(added.split("\n")).difference(known.text.split("\n"))
    text = "\n".join([known.text, *lines, ""]) if lines else known.text
    return BlockText(text, max_size=known.max_size) if len(text) <= known.max_size else None


def _text(heads: Sequence[bytes]) -> str | None:
    """Return the texts of nodes, each once; None if they are large or ambiguous."""
    if sum(map(len, heads)) > MAX_JOINED_BYTES:
        return None
    return _joined(set(_split(heads)))


def _split(heads: Sequence[bytes]) -> list[bytes]:
    """Return the encoded texts of nodes, with what is between labels and kv."""
    return BETWEEN_TEXTS.join([head[BEGIN:END] for head in heads]).split(BETWEEN_TEXTS)


def _joined(texts: Iterable[bytes]) -> str | None:
    """Return encoded texts in lower case, each in a line of its own; None if they are ambiguous."""
    joined = b"\n%b\n" % b"\n".join(texts)
    if any(mark in joined for mark in AMBIGUOUS):
        return None
    text = joined.decode().casefold()
    for structure, replacement in STRUCTURE:
        text = text.replace(structure, replacement)
    return text
