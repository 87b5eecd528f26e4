"""GET /nodes?watch=true: the nodes, and then their changes, as server-sent events."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
from aiohttp import web

from httpd.sse import EventStreams, StreamBroken
from registry.nodes.change_log import (
    MAX_BYTES_AT_ONCE,
    EventKind,
    PastChange,
    Position,
)
from registry.nodes.directory import KnownNode, node_tail
from registry.nodes.search import Filters
from registry.registry import Registry
from registry.responses.encoding import in_pieces
from registry.responses.slices import TimeSlices

CHANGES_AT_ONCE = 400
MAX_ROUNDS = 8
MAX_SCANNED_BYTES = 128 * 1024
MAX_WATCHERS = 1200
MAX_SHARED_RUNS = 128
# A slow client keeps a run in memory, even if no other gets the same.
MAX_SHARED_RUN_BYTES = 4 * MAX_BYTES_AT_ONCE
Parts = list[bytes]


class View(NamedTuple):
    """What a client is sent: the nodes that pass the filters, with their addresses or without."""

    filters: Filters
    address: bool = False


class Run(NamedTuple):
    """The next events for a client, in pieces (None if there are none), and the position after.

    `begun` is how many clients had begun when it was made.
    """

    pieces: Iterable[bytes] | None
    end: Position
    begun: int = 0


class NodeWatch:
    """Sends each client the nodes and their changes, as far as it takes them.

    A client that sends the id of its last event gets what has changed since. If that is no longer
    known, or it sends none, it gets `reset`, then each node as it is now, then `listed`. Changes of
    nodes that it was sent already come in between. Clients that are at the same position share what
    comes next, but no client gets nodes as they were before it began.
    """

    def __init__(self, registry: Registry, streams: EventStreams) -> None:
        self._writes = registry.nodes.writes
        self._queries = registry.queries
        self._directory = registry.context.directory
        self.change_log = registry.change_log
        self._warm_up = registry.warm_up
        self._begun = 0
        self._streams = streams
        self._slices = TimeSlices()  # a thousand clients that watch do not delay other answers
        self._shared: OrderedDict[tuple[Position, View, int], Run] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    async def respond(self, request: web.Request, view: View) -> web.StreamResponse:
        """Answer 200 with events until the client leaves, its key is revoked or reads fail.

        Raises StoreUnavailable, NotLoaded, NoPlace.
        """
        await self._queries.prepare_read()
        return await self._streams.respond(request, WatchCursor(self, view))

    def count_begun(self) -> int:
        """Count a client that begins now; return how many have begun so far."""
        self._begun += 1
        return self._begun

    def reset(self) -> tuple[bytes, Position]:
        """Return the event with which a watch of all nodes begins, and its position."""
        position = Position(self.change_log.last, "")
        return b"".join(self._event("reset", [b"{}"], position)), position

    async def following(self, position: Position, view: View, *, begun: int) -> Run:
        """Return the next events for the client that began as this one; raises StreamBroken."""
        if not self._writes.is_readable:
            raise StreamBroken
        async with self._slices.turn():
            return self._following(position, view, begun)

    def _following(self, position: Position, view: View, begun: int) -> Run:
        """Return the next events, which clients share; raises StreamBroken."""
        # At the beginning of the list, no change is sent yet, so their number makes no difference.
        start = position._replace(number=0) if position.listed == "" else position
        # Once changes are dropped, as when hosts are denied, nothing that was made before is sent.
        key = start, view, self.change_log.first
        shared = self._shared.get(key)
        if shared is not None and (position.listed is None or shared.begun >= begun):
            self._shared.move_to_end(key)
            return shared
        parts, end = self._next(position, view)
        if end == position:
            return Run(None, position)
        if sum(map(len, parts)) > MAX_SHARED_RUN_BYTES:
            return Run(in_pieces(parts), end)
        # To join the parts for each client would take longer than to send them.
        run = self._shared[key] = Run(list(in_pieces(parts)) or None, end, self._begun)
        self._shared.move_to_end(key)
        if len(self._shared) > MAX_SHARED_RUNS:
            self._shared.popitem(last=False)
        return run

    def _next(self, position: Position, view: View) -> tuple[Parts, Position]:
        """Return the next events, and the position after them; raises StreamBroken.

        While the nodes are being listed, changes of those that were listed already come first.
        """
        parts, end = self._changed(position, view)
        if position.listed is None:
            return parts, end
        for _ in range(MAX_ROUNDS):  # or a fleet that changes fast enough would never be listed
            if end.number == self.change_log.last or sum(map(len, parts)) > MAX_BYTES_AT_ONCE:
                break
            more, end = self._changed(end, view)
            parts += more
        if end.number < self.change_log.last:
            return parts, end
        listed, end = self._listed(end, position.listed, view)
        return parts + listed, end

    def _changed(self, position: Position, view: View) -> tuple[Parts, Position]:
        """Return the events of the next changes, and the position after; raises StreamBroken."""
        changes = self.change_log.after(position.number, CHANGES_AT_ONCE)
        if changes is None:
            raise StreamBroken
        end = position._replace(number=position.number + len(changes))
        return list(self._events(changes, position, view)), end

    def _events(
        self, changes: Iterable[PastChange], position: Position, view: View
    ) -> Iterator[bytes]:
        """Yield the events of changes; those of nodes that are not listed yet are left out."""
        matches = view.filters.matcher()
        for number, change in enumerate(changes, position.number + 1):
            if position.listed is not None and change.hostname > position.listed:
                continue
            kind = change.kind_for(matches, address=view.address)
            if kind is not None:
                data = _node(change, view) if kind == "node" else _name(change)
                yield from self._event(kind, data, position._replace(number=number))

    def _listed(self, position: Position, listed: str, view: View) -> tuple[Parts, Position]:
        """Return the events of the next nodes of the list or of its end, and the position after."""
        parts: Parts = []
        matches = view.filters.matcher()
        scanned = size = 0
        following = Position(position.number)
        entries = self._unlisted(listed, again=position.again)
        if not entries:
            return self._event("listed", [self._end_of_list()], following), following
        for entry in entries:
            following = Position(position.number, entry.hostname)
            if matches(entry.head, entry.labels_start()):
                parts += self._node_events(entry, following, view)
                size += len(entry.head)
            scanned += len(entry.head)
            if scanned > MAX_SCANNED_BYTES or size > MAX_BYTES_AT_ONCE:
                break
        return parts, following

    def _unlisted(self, listed: str, *, again: bool) -> list[KnownNode]:
        entry = self._directory.entries.get(listed) if again else None
        following = self._directory.sorted.following(listed)
        return following if entry is None else [entry, *following]

    def _node_events(self, entry: KnownNode, position: Position, view: View) -> Parts:
        """Return the events that describe a node; the last one has the id of the position."""
        node = _node(entry, view)
        if not entry.is_stale:
            return self._event("node", node, position)
        first = self._event("node", node, position._replace(again=True))
        return first + self._event("stale", _name(entry), position)

    def _end_of_list(self) -> bytes:
        """Return what `listed` says: for how long hosts may be missing, after the store was new."""
        seconds = self._warm_up.remaining_seconds
        return msgspec.json.encode({"warming_seconds": seconds} if seconds else {})

    def _event(
        self, kind: EventKind | Literal["reset", "listed"], data: Parts, position: Position
    ) -> Parts:
        """Return an event in parts, of which a large one is shared with the directory."""
        return [
            b"id: %b\nevent: %b\ndata: "
            % (self.change_log.id_of(position).encode(), kind.encode()),
            *data,
            b"\n\n",
        ]


class WatchCursor:
    """The position of one client; it has taken all changes up to a number."""

    def __init__(self, watch: NodeWatch, view: View) -> None:
        self._watch, self._log = watch, watch.change_log
        self._view = view
        self._begun = watch.count_begun()
        _, self._position = watch.reset()
        self._taken = self._position.number

    @property
    def id(self) -> bytes:
        """The id of the position."""
        return self._log.id_of(self._position).encode()

    def begin(self, last_id: str) -> bytes:
        """Go to the position of an id, or else to a `reset`, which is returned."""
        position = self._log.position_of(last_id, address=self._view.address)
        first = b""
        if position is None:
            first, position = self._watch.reset()
        self._position, self._taken = position, position.number
        return first

    async def advance(self) -> Iterable[bytes] | None:
        """Return the next events in pieces, None if there are none; raises StreamBroken."""
        run = await self._watch.following(self._position, self._view, begun=self._begun)
        self._position = run.end
        return run.pieces

    def taken(self) -> None:
        """Record that the client has taken the events up to the position."""
        self._taken = self._position.number

    def is_at_end(self) -> bool:
        """Return whether nothing has changed since."""
        return self._position == Position(self._log.last)

    def is_kept(self) -> bool:
        """Return whether all changes that the client has not taken are kept."""
        return self._taken >= self._log.first


def _node(node: PastChange | KnownNode, view: View) -> Parts:
    return [node.head, node_tail(node.last_update, node.address if view.address else None)]


def _name(node: PastChange | KnownNode) -> Parts:
    return [msgspec.json.encode({"hostname": node.hostname})]
