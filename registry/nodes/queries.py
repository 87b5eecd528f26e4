"""What can be asked of the nodes: one of them, all of them, those that pass filters."""

import math

from registry.errors import NodeNotFound
from registry.nodes.context import RegistryContext
from registry.nodes.directory.directory import Entry
from registry.nodes.directory.listing import Listing, Selection
from registry.nodes.directory.search import prepare
from registry.nodes.nodes import Nodes
from registry.responses.time_slices import TimeSlices
from runtime.share import SharedWork

# The nodes of a directory of this size are listed at once.
MAX_NODES_AT_ONCE = 500
# For so long after a search, the next ones are prepared.
PREPARED_SECONDS = 600.0


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
        self._listings = SharedWork[Selection, Listing]()

    def seconds_since(self, entry: Entry) -> float:
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
        await self._slices.run(iter(self._nodes.update_some_ages, False))

    def require_available(self) -> None:
        """Raise StoreUnavailable or NotLoaded if reads are not possible."""
        self._nodes.writes.require_readable()

    async def prepare_read(self) -> None:
        """Mark stale nodes, and forget the expired ones, before a read.

        Raises StoreUnavailable or NotLoaded if reads are not possible.
        """
        self._nodes.writes.require_readable()
        await self.update_ages()

    async def entry(self, hostname: str) -> Entry:
        """Return the entry of a host. Raises NodeNotFound, StoreUnavailable, NotLoaded."""
        await self.prepare_read()
        entry = self._directory.entries.get(hostname)
        if entry is None:
            raise NodeNotFound(f"no node {hostname} is known")
        return entry

    def expected_bytes(self, selection: Selection) -> int:
        """Return how much memory a listing may take."""
        known = len(self._directory)
        count = known if selection.limit is None else min(known, selection.limit)
        return selection.node_bytes * count

    async def list(self, selection: Selection) -> Listing:
        """Return the nodes that are selected. Raises StoreUnavailable, NotLoaded."""
        await self.prepare_read()
        if selection.search:
            self._searching_until = self._steady() + PREPARED_SECONDS
        if len(self._directory) <= MAX_NODES_AT_ONCE:
            return await self._read(selection)
        return await self._listings.get(selection, lambda: self._read(selection))

    async def _read(self, selection: Selection) -> Listing:
        listing = Listing(self._directory)
        await self._slices.run(listing.read(selection, self._monotonic()))
        return listing
