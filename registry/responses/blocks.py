"""Items sorted by key in blocks, and what is encoded of each block, which answers share."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

DIGEST_BYTES = 16
MAX_JOINED_BYTES = 256 * 1024


class SortedItem(Protocol):
    """An item of SortedBlocks."""

    def enter(self, block: "Block[Any]") -> None:
        """Take note of the block that holds the item from now on."""


class BlockItem:
    """A sorted item that knows its block, so that a change of the item needs no search."""

    __slots__ = ("block",)

    def __init__(self) -> None:
        self.block: Block[Any] | None = None

    def enter(self, block: "Block[Any]") -> None:
        """Take note of the block that holds the item from now on."""
        self.block = block


T = TypeVar("T", bound=SortedItem)


class BlockText(Generic[T]):
    """What is searched for in the items of a block, except in those that have `changed` since.

    It may have more than that, up to `max_size` characters. It is None if it is not kept.
    """

    __slots__ = ("changed", "max_size", "text")

    def __init__(self, text: str | None, *, max_size: int = 0) -> None:
        self.text = text
        self.max_size = max_size
        self.changed: list[T] = []


class Block(Generic[T]):
    """Neighbours in the order of their keys.

    `runs` holds what was encoded of all `items`, by the name of its form, since the last change,
    such as an EncodedRun: each has a `drop`, which is called once it is kept no longer;
    `text` what was made of them to be searched.
    """

    __slots__ = ("items", "runs", "text")
    runs: dict[str, Any]

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.runs = {}
        self.text: BlockText[T] | None = None
        for item in items:
            item.enter(self)

    def invalidate(self, changed: T | None = None) -> None:
        """Drop what was encoded. What is being encoded at present goes into the old dict.

        If one item has changed or is new, the text of the others stays.
        """
        if self.runs:
            for run in self.runs.values():
                run.drop()
        self.runs = {}
        if changed is None or self.text is None or len(self.text.changed) >= len(self.items):
            self.text = None
        else:
            self.text.changed.append(changed)

    def drop(self, form: str) -> None:
        """Drop what was encoded of one form, to free its memory."""
        run = self.runs.pop(form, None)
        if run is not None:
            run.drop()


class SortedBlocks(Generic[T]):
    """Items sorted by a text that each has as its key; no two have the same.

    A change costs a binary search and invalidates one block. A block is split when it has more
    than `max_items`, and is dropped with its last item; blocks are never empty.
    """

    def __init__(self, *, key: Callable[[T], str], max_items: int) -> None:
        self._key = key
        self._max_items = max_items
        self._blocks: list[Block[T]] = []
        self._firsts: list[str] = []
        self.version = 0  # another one after each change

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[T]:
        return (item for block in self._blocks for item in block.items)

    def blocks(self) -> list[Block[T]]:
        """Return the blocks of this moment, in order. One that is split later keeps its items."""
        return self._blocks.copy()

    def following(self, key: str) -> list[T]:
        """Return the next items after a key, as many as one block has; none at the end.

        A caller that goes on with the last one's key gets each item once, although others come and
        go.
        """
        at = self._block_of(key)
        for block in self._blocks[at : at + 2]:
            items = block.items
            if self._key(items[-1]) > key:
                return items[bisect_right(items, key, key=self._key) :]
        return []

    def fill(self, ordered: Sequence[T]) -> None:
        """Replace everything by items that are sorted already; blocks are left half full."""
        self.version += 1
        size = max(self._max_items // 2, 1)
        contents = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        self._replace(0, len(self._blocks), contents)

    def put(self, item: T) -> T | None:
        """Add an item, or replace the one with its key; return the replaced one, if any."""
        self.version += 1
        key = self._key(item)
        if not self._blocks:
            self._replace(0, 0, [[item]])
            return None
        at = self._block_of(key)
        block = self._blocks[at]
        block.invalidate(item)
        items = block.items
        item.enter(block)
        place = bisect_left(items, key, key=self._key)
        if place < len(items) and self._key(items[place]) == key:
            replaced, items[place] = items[place], item
            return replaced
        items.insert(place, item)
        self._firsts[at] = self._key(items[0])
        if len(items) > self._max_items:
            # Items often come in the order of their keys: then full blocks are left behind.
            middle = len(items) // 2 if place < len(items) - 1 else len(items) - 1
            self._replace(at, at + 1, [items[:middle], items[middle:]])
        return None

    def remove(self, key: str) -> T | None:
        """Remove the item with this key; return it, or None if there is none."""
        at = self._block_of(key)
        items = self._blocks[at].items if self._blocks else []
        place = bisect_left(items, key, key=self._key)
        if place == len(items) or self._key(items[place]) != key:
            return None
        self.version += 1
        self._blocks[at].invalidate()
        removed = items.pop(place)
        if items:
            self._firsts[at] = self._key(items[0])
        else:
            self._replace(at, at + 1, [])
        return removed

    def _block_of(self, key: str) -> int:
        """Return the index of the block that has, or would get, this key."""
        return max(bisect_right(self._firsts, key) - 1, 0)

    def _replace(self, start: int, end: int, contents: Sequence[Sequence[T]]) -> None:
        for block in self._blocks[start:end]:
            block.invalidate()
        self._blocks[start:end] = [Block(list(items)) for items in contents]
        self._firsts[start:end] = [self._key(items[0]) for items in contents]


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
