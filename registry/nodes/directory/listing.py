"""The answer to GET /nodes: nodes as they were, encoded anew for each reader, piece by piece."""

from array import array
from collections.abc import Generator, Iterable, Iterator
from hashlib import sha256
from operator import add
from typing import NamedTuple

from registry.nodes.directory.directory import Directory, Entry, node_tail
from registry.nodes.directory.filters import Filters
from registry.nodes.directory.search import TextSearch
from registry.responses.encoded_runs import DIGEST_BYTES
from registry.responses.encoding import PIECE_BYTES, Pinned, array_parts, in_pieces

# A reference to the encoded node, and its `last_update`.
NODE_BYTES = 16
# A reference to the address.
ADDRESS_BYTES = 8
# Who asks how many nodes there are gets no number beyond these: of so many nodes, and of a search
# that looks at so many one by one, which takes some tenths of a second in all.
MAX_COUNTED = 10_000
MAX_EXAMINED = 20_000
# Searching this many bytes for values takes half a millisecond.
MAX_SCANNED_BYTES = 1024 * 1024


class Selection(NamedTuple):
    """Which nodes are asked for: those behind `after` that pass the filters, at most `limit`.

    `search` is part of any text of theirs, as TextSearch has it; empty if nothing is searched for.
    With `apps_down`, only those that tell of apps that are down or unhealthy, or only others.
    With `address`, each node is shown with the address that its last heartbeat came from. With
    `total`, all that pass are counted, also before and after the page.
    """

    filters: Filters
    after: str = ""
    limit: int | None = None
    search: str = ""
    apps_down: bool | None = None
    address: bool = False
    total: bool = False

    @property
    def node_bytes(self) -> int:
        """How much memory a listing takes for each node."""
        return NODE_BYTES + ADDRESS_BYTES * self.address


class Listing:
    """Nodes sorted by hostname, each as it was when it was read.

    It refers to the encoded nodes of the directory and copies none. So it is small beside the list
    that it stands for, however many readers take their time. It keeps nodes that were replaced
    since, as do the listings made after it.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._replaced_bytes = directory.replaced_bytes
        self._chunks: list[_Chunk] = []
        self._hash = sha256()
        self._held = 0
        self.size = len(b"[]")
        self.next_after: str | None = None  # where the next page goes on, if there is one
        self.total: int | None = None  # how many nodes pass, if that is asked for and not too many

    @property
    def digest(self) -> bytes:
        """Return what identifies the content."""
        return self._hash.digest()[:DIGEST_BYTES]

    def pieces(self) -> Iterator[bytes]:
        """Return the JSON array in pieces."""
        return in_pieces(array_parts(chunk.parts() for chunk in self._chunks))

    def held_bytes(self) -> int:
        """Return how much memory it takes: references and numbers."""
        return self._held

    def pinned(self) -> Pinned:
        """Return the size of the encoded nodes that were replaced or removed since it was begun."""
        return Pinned(self._directory, self._directory.replaced_bytes - self._replaced_bytes)

    def read(self, selection: Selection, now: float) -> Iterator[None]:
        """Read the nodes, in steps of less than a millisecond; nodes may change in between.

        A node that is there throughout is listed once. `now` is the monotonic time.
        """
        new_chunk = _AddressedChunk if selection.address else _Chunk
        chunk, left = new_chunk(), selection.limit
        last = ""
        for entry in _passing(self._directory, selection, now, _search(selection)):
            if entry is None:
                yield
                continue
            if left == 0:
                self.next_after = last
                break
            left = None if left is None else left - 1
            last = entry.hostname
            if chunk.size + len(entry.head) > PIECE_BYTES:
                self._add(chunk)
                chunk = new_chunk()
            chunk.add(entry)
            yield
        self._add(chunk)
        if selection.total:
            yield from self._count(selection._replace(after=""), now)

    def _count(self, selection: Selection, now: float) -> Iterator[None]:
        """Count the nodes that pass, in steps like those of `read`."""
        search, count = _search(selection), 0
        for entry in _passing(self._directory, selection, now, search):
            count += entry is not None
            if count > MAX_COUNTED or (search is not None and search.examined > MAX_EXAMINED):
                return
            yield
        self.total = count

    def _add(self, chunk: "_Chunk") -> None:
        if not chunk.finish():
            return
        self.size += 1 if self._chunks else 0
        self._hash.update(b"," if self._chunks else b"[")
        for part in chunk.parts():
            self._hash.update(part)
            self.size += len(part)
        self._held += chunk.held_bytes()
        self._chunks.append(chunk)


class _Chunk:
    """Some neighbours: the encoded nodes that the directory has, and their `last_update`.

    In the end they are a tuple, since the garbage collector passes over tuples of bytes. It would
    look at lists each time, which takes a tenth of a second for a million nodes.
    """

    __slots__ = ("_added", "heads", "last_updates", "size")

    def __init__(self) -> None:
        self._added: list[bytes] = []
        self.heads: tuple[bytes, ...] = ()
        self.last_updates = array("q")
        self.size = 0

    def add(self, entry: Entry) -> None:
        """Add a node as it is now."""
        self._added.append(entry.head)
        self.last_updates.append(entry.last_update)
        self.size += len(entry.head)

    def finish(self) -> int:
        """Add no more; return the number of nodes."""
        self.heads, self._added = tuple(self._added), []
        return len(self.heads)

    def held_bytes(self) -> int:
        """Return how much memory it takes."""
        return NODE_BYTES * len(self.heads)

    def parts(self) -> Iterable[bytes]:
        """Return the values with commas between them, in parts; large ones are not copied."""
        if len(self.heads) == 1:
            return self.heads[0], b"%d}" % self.last_updates[0]
        pairs = zip(self.heads, self.last_updates, strict=True)
        return [b",".join([b"%b%d}" % pair for pair in pairs])]


class _AddressedChunk(_Chunk):
    """Some neighbours, each with the address that its last heartbeat came from."""

    __slots__ = ("_added_addresses", "_addresses")

    def __init__(self) -> None:
        super().__init__()
        self._added_addresses: list[str] = []
        self._addresses: tuple[str, ...] = ()

    def add(self, entry: Entry) -> None:
        """Add a node as it is now."""
        super().add(entry)
        self._added_addresses.append(entry.address)

    def finish(self) -> int:
        """Add no more; return the number of nodes."""
        self._addresses, self._added_addresses = tuple(self._added_addresses), []
        return super().finish()

    def held_bytes(self) -> int:
        """Return how much memory it takes."""
        return super().held_bytes() + ADDRESS_BYTES * len(self.heads)

    def parts(self) -> Iterable[bytes]:
        """Return the values with commas between them, in parts; large ones are not copied."""
        tails = map(node_tail, self.last_updates, self._addresses)
        if len(self.heads) == 1:
            return self.heads[0], next(tails)
        return [b",".join(map(add, self.heads, tails))]


def _search(selection: Selection) -> TextSearch | None:
    return TextSearch(selection.search) if selection.search else None


def _passing(
    directory: Directory, selection: Selection, now: float, search: TextSearch | None
) -> Generator[Entry | None, None, None]:
    """Yield the nodes that pass, and None now and then where none does for a while."""
    filters = selection.filters
    passes, apps_down = filters.predicate(now), selection.apps_down
    after = selection.after
    scanned = 0
    while entries := directory.sorted.following(after):
        after = entries[-1].hostname
        found = entries if search is None else (yield from search.found(entries))
        for entry in filters.in_state(found):
            if passes(entry) and (apps_down is None or entry.apps_down is apps_down):
                yield entry
                continue
            scanned += len(entry.head) * len(filters)
            if scanned > MAX_SCANNED_BYTES:
                scanned = 0
                yield None
        yield None
