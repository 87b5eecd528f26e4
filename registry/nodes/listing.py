"""The answer to GET /nodes: nodes as they were, encoded anew for each reader, piece by piece."""

import math
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from operator import add
from typing import NamedTuple

from registry.errors import NodeNotFound
from registry.nodes.context import RegistryContext
from registry.nodes.directory import LIST_FORM, Directory, KnownNode, node_tail
from registry.nodes.nodes import Nodes
from registry.nodes.search import Filters, TextSearch, prepare
from registry.responses.blocks import DIGEST_BYTES, Block
from registry.responses.encoding import LargeBody, Pinned, array_parts
from registry.responses.slices import TimeSlices
from runtime.share import SingleFlight

# A reference to the encoded node, and its `last_update`.
NODE_BYTES = 16
# A reference to the address.
ADDRESS_BYTES = 8
# Who asks how many nodes there are gets no number beyond these: of so many nodes, and of a search
# that looks at so many one by one, which takes some tenths of a second in all.
MAX_COUNTED = 10_000
MAX_EXAMINED = 20_000
# To look for values in this many bytes, to digest them or to join them, takes half a millisecond.
MAX_BYTES_AT_ONCE = 256 * 1024
KEPT_NODE_BYTES = 8 + DIGEST_BYTES
HEADS_FORM, PASSING_FORM = "heads", "passing"
KEPT_FILTER_BYTES = 256
# The nodes of a directory of this size are listed at once.
MAX_NODES_AT_ONCE = 500
# For so long after a search, the next ones are prepared.
PREPARED_SECONDS = 600.0


class NodeFilter(NamedTuple):
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


class Listing(LargeBody):
    """Nodes sorted by hostname, each as it was when it was read.

    It refers to the encoded nodes of the directory and copies none. So it is small beside the list
    that it stands for, however many readers take their time. It keeps nodes that were replaced
    since, as do the listings made after it. A block that has not changed since the list before is
    encoded only once.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._replaced_bytes = directory.replaced_bytes
        self._version = directory.version
        self._chunks: list[_Chunk] = []
        self._heads_hash, self._times_hash, self._addresses_hash = sha256(), sha256(), sha256()
        self._held = 0
        self.size = len(b"[]")
        self.next_after: str | None = None  # where the next page goes on, if there is one
        self.total: int | None = None  # how many nodes pass, if that is asked for and not too many

    @property
    def digest(self) -> bytes:
        """Return a digest of the digests of all nodes, wherever the list is cut into chunks."""
        hashes = (self._heads_hash, self._times_hash, self._addresses_hash)
        return sha256(b"".join([each.digest() for each in hashes])).digest()[:DIGEST_BYTES]

    def parts(self) -> Iterable[bytes]:
        """Return the JSON array in parts."""
        return array_parts(chunk.parts() for chunk in self._chunks)

    @property
    def is_current(self) -> bool:
        """Whether nothing that it shows has changed since it was begun, but for addresses."""
        return self._version == self._directory.version

    def held_bytes(self) -> int:
        """Return how much memory it takes: references and numbers."""
        return self._held

    def pinned(self) -> Pinned:
        """Return the size of the encoded nodes that were replaced or removed since it was begun."""
        return Pinned(self._directory, self._directory.replaced_bytes - self._replaced_bytes)

    def read(self, selection: NodeFilter, now: float) -> Iterator[None]:
        """Read the nodes, in steps of less than a millisecond; nodes may change in between.

        A node that is there throughout is listed once. `now` is the monotonic time.
        """
        left, last, is_cut = selection.limit, "", False
        for passing in _passing(self._directory, selection, now, _search(selection)):
            found = passing or []
            if left is not None:
                is_cut, found = len(found) > left, found[:left]
                left -= len(found)
            if found:
                last = found[-1].hostname
                self._add(found, selection)
            if is_cut:
                self.next_after = last
                break
            yield
        if selection.total:
            yield from self._count(selection._replace(after=""), now)

    def _count(self, selection: NodeFilter, now: float) -> Iterator[None]:
        """Count the nodes that pass, in steps like those of `read`."""
        search, count = _search(selection), 0
        for found in _passing(self._directory, selection, now, search):
            count += len(found or ())
            if count > MAX_COUNTED or (search is not None and search.examined > MAX_EXAMINED):
                return
            yield
        self.total = count

    def _add(self, found: list[KnownNode], selection: NodeFilter) -> None:
        """Add neighbours as they are now; those of a whole block are encoded once."""
        block = found[0].block
        if block is not None and block.items != found:
            block = None
        chunk: _Chunk | None = None
        if block is not None and not selection.address:
            chunk = block.runs.get(LIST_FORM)
        if chunk is None:
            chunk = _Chunk(self._heads(found, block), found, address=selection.address)
            if block is not None and not selection.address:
                chunk.keep(block, self._directory)
            chunk.forget()
        self._heads_hash.update(chunk.heads.digests)
        self._times_hash.update(chunk.last_updates.tobytes())
        self._addresses_hash.update("".join([f"{each}\n" for each in chunk.addresses]).encode())
        self.size += chunk.size + (1 if self._chunks else 0)
        self._held += NODE_BYTES * len(found) + ADDRESS_BYTES * len(chunk.addresses)
        self._chunks.append(chunk)

    def _heads(self, found: Sequence[KnownNode], block: Block[KnownNode] | None) -> "_Heads":
        heads: _Heads | None = None if block is None else block.runs.get(HEADS_FORM)
        if heads is None:
            heads = _Heads([entry.head for entry in found])
            if block is not None:
                heads.keep(block, self._directory)
        return heads


class _Kept:
    """What a block keeps for the next list, as long as all blocks keep little enough."""

    __slots__ = ("_directory", "_kept_bytes")
    form: str

    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._kept_bytes = 0

    def keep_bytes(self, size: int, block: Block[KnownNode], directory: Directory) -> bool:
        """Let the block keep it, if there is room; return whether it does."""
        if directory.kept_bytes + size > directory.max_kept_bytes:
            return False
        self._directory, self._kept_bytes = directory, size
        directory.kept_bytes += size
        block.runs[self.form] = self
        return True

    def drop(self) -> None:
        """Record that the block has changed."""
        if self._directory is not None:
            self._directory.kept_bytes -= self._kept_bytes
            self._directory = None


class _Heads(_Kept):
    """Some neighbours, each encoded up to the number of `last_update`, and digests of these.

    They are a tuple, since the garbage collector passes over tuples of bytes. It would look at
    lists each time, which takes a tenth of a second for a million nodes.
    """

    __slots__ = ("digests", "values")
    form = HEADS_FORM

    def __init__(self, values: Sequence[bytes]) -> None:
        super().__init__()
        self.values = tuple(values)
        self.digests = b"".join([sha256(value).digest()[:DIGEST_BYTES] for value in values])

    def keep(self, block: Block[KnownNode], directory: Directory) -> None:
        """Let the block keep them, if there is room."""
        self.keep_bytes(KEPT_NODE_BYTES * len(self.values), block, directory)


class _Passing(_Kept):
    """Whether all nodes of a block pass the filters of the last list, or none does."""

    __slots__ = ("do_pass", "filters")
    form = PASSING_FORM

    def __init__(self, filters: Filters, *, do_pass: bool) -> None:
        super().__init__()
        self.filters = filters
        self.do_pass = do_pass


class _Chunk(_Kept):
    """Some neighbours, with their `last_update`, and with their addresses if these are shown.

    `_encoded` is what the block keeps of it; readers that are slower encode it again.
    """

    __slots__ = ("_encoded", "addresses", "heads", "last_updates", "size")
    form = LIST_FORM

    def __init__(self, heads: _Heads, entries: Sequence[KnownNode], *, address: bool) -> None:
        super().__init__()
        self.heads = heads
        self.last_updates = array("q", [entry.last_update for entry in entries])
        self.addresses = tuple([entry.address for entry in entries]) if address else ()
        self._encoded: Sequence[bytes] | None = None
        self._encoded = self.parts()
        self.size = sum(map(len, self._encoded))

    def keep(self, block: Block[KnownNode], directory: Directory) -> None:
        """Let the block keep what is encoded, if there is room."""
        self.keep_bytes(self.size, block, directory)

    def forget(self) -> None:
        """Hold what is encoded no longer, unless the block keeps it."""
        if self._directory is None:
            self._encoded = None

    def drop(self) -> None:
        """Record that the block has changed; a reader that has not come so far encodes it again."""
        super().drop()
        self._encoded = None

    def parts(self) -> Sequence[bytes]:
        """Return the values with commas between them, in parts; large ones are not copied."""
        if self._encoded is not None:
            return self._encoded
        heads, last_updates = self.heads.values, self.last_updates
        if self.addresses:
            shown = map(node_tail, last_updates, self.addresses)
            return [heads[0], *shown] if len(heads) == 1 else [b",".join(map(add, heads, shown))]
        if len(heads) == 1:
            return [heads[0], b"%d}" % last_updates[0]]
        tails = [b"%d}," % last_update for last_update in last_updates]
        tails[-1] = tails[-1][:-1]
        return [b"".join(chain.from_iterable(zip(heads, tails, strict=True)))]


def _search(selection: NodeFilter) -> TextSearch | None:
    return TextSearch(selection.search) if selection.search else None


def _passing(
    directory: Directory, selection: NodeFilter, now: float, search: TextSearch | None
) -> Generator[list[KnownNode] | None, None, None]:
    """Yield some neighbours that pass at a time; none, or None, where none does for a while."""
    filters = selection.filters
    choose, apps_down = filters.chooser(now), selection.apps_down
    max_bytes = MAX_BYTES_AT_ONCE // max(len(filters), 1)
    after = selection.after
    is_plain, is_all = search is None and apps_down is None, not filters
    while entries := directory.sorted.following(after):
        after = entries[-1].hostname
        block = entries[0].block
        is_whole = is_plain and block is not None and len(block.items) == len(entries)
        known: bool | None = None
        if block is not None and is_whole:
            known = is_all or _known_to_pass(filters, block)
        if known is False:
            yield None
            continue
        if known and block is not None and LIST_FORM in block.runs:
            yield entries  # they are encoded already
            continue
        found = entries if search is None else [*(yield from search.found(entries))]
        if apps_down is not None:
            found = [entry for entry in found if entry.apps_down is apps_down]
        groups = _groups(found, max_bytes)
        for some in groups:
            passing = some if known else choose(some)
            if known is None and block is not None and is_whole and len(groups) == 1:
                _note_passing(filters, block, passing, directory)
            yield passing


def _known_to_pass(filters: Filters, block: Block[KnownNode]) -> bool | None:
    """Return whether all nodes of a block pass, or none; None if that is not known."""
    known: _Passing | None = block.runs.get(PASSING_FORM)
    return known.do_pass if known is not None and known.filters == filters else None


def _note_passing(
    filters: Filters, block: Block[KnownNode], passing: list[KnownNode], directory: Directory
) -> None:
    """Let a block keep that all of its nodes pass, or none, for the next list with the filters."""
    if filters.is_lasting and len(passing) in (0, len(block.items)):
        block.drop(PASSING_FORM)
        _Passing(filters, do_pass=bool(passing)).keep_bytes(KEPT_FILTER_BYTES, block, directory)


def _groups(entries: list[KnownNode], max_bytes: int) -> Sequence[list[KnownNode]]:
    """Return neighbours in groups of at most so many bytes, or of one that is larger."""
    sizes = [len(entry.head) for entry in entries]
    if sum(sizes) <= max_bytes:
        return [entries]
    groups: list[list[KnownNode]] = []
    size = max_bytes
    for entry, own in zip(entries, sizes, strict=True):
        if size + own > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += own
    return groups


class NodeQueries:
    """Reads nodes from memory. Every answer is as of a moment after it was asked for."""

    def __init__(
        self,
        context: RegistryContext,
        nodes: Nodes,
        slices: TimeSlices,
    ) -> None:
        self._nodes = nodes
        self._directory = context.directory
        self._slices = slices
        _, self._monotonic, self._steady = context.clocks
        self._searching_until = math.inf
        # For the next one who asks for the same.
        self._last: tuple[NodeFilter, Listing] | None = None
        self._listings = SingleFlight[NodeFilter, Listing]()

    def seconds_since(self, entry: KnownNode) -> float:
        """Return how long ago a node was last seen, with the time for which the store is away.

        That time makes no node stale: the clock by which nodes age stands still meanwhile.
        """
        return max(0.0, self._monotonic() - entry.heard) + self._nodes.health.age

    async def prepare_search(self) -> None:
        """Make what searches look at, so that the first one after a start is quick, too.

        It is made anew only while somebody searches: nodes that change would make it costly.
        """
        if self._steady() >= self._searching_until:
            return
        await self._slices.run(prepare(self._directory.sorted.blocks()))
        if self._searching_until == math.inf:
            self._searching_until = self._steady()

    async def update_ages(self) -> None:
        """Mark stale nodes, and forget the expired ones; the loop serves others meanwhile."""
        self._drop_outdated()
        await self._slices.run(iter(self._nodes.update_some_ages, False))

    def _drop_outdated(self) -> None:
        """Drop the last list once a node has changed: it holds nodes that were replaced."""
        if self._last is not None and not self._last[1].is_current:
            self._last = None

    async def prepare_read(self) -> None:
        """Mark stale nodes, and forget the expired ones, before a read.

        Raises StoreUnavailable or NotLoaded if reads are not possible.
        """
        self._nodes.writes.require_readable()
        if self._nodes.update_some_ages():
            await self.update_ages()

    async def entry(self, hostname: str) -> KnownNode:
        """Return the entry of a host. Raises NodeNotFound, StoreUnavailable, NotLoaded."""
        await self.prepare_read()
        entry = self._directory.entries.get(hostname)
        if entry is None:
            raise NodeNotFound(f"no node {hostname} is known")
        return entry

    def expected_bytes(self, selection: NodeFilter) -> int:
        """Return how much memory a listing may take."""
        known = len(self._directory)
        count = known if selection.limit is None else min(known, selection.limit)
        return selection.node_bytes * count

    async def list(self, selection: NodeFilter) -> Listing:
        """Return the nodes that are selected. Raises StoreUnavailable, NotLoaded."""
        await self.prepare_read()
        if selection.search:
            self._searching_until = self._steady() + PREPARED_SECONDS
        if len(self._directory) <= MAX_NODES_AT_ONCE:
            return await self._read(selection)
        return await self._listings.get(selection, lambda: self._read(selection))

    async def _read(self, selection: NodeFilter) -> Listing:
        self._drop_outdated()
        if self._last is not None and self._last[0] == selection:
            return self._last[1]
        listing = Listing(self._directory)
        await self._slices.run(listing.read(selection, self._monotonic()))
        is_lasting = selection.filters.is_lasting and not selection.address
        self._last = (selection, listing) if is_lasting and listing.is_current else None
        return listing
