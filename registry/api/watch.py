"""GET /nodes?watch=true: the nodes, and then their changes, as server-sent events."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from aiohttp import web

from httpd.bodies import SERVER
from httpd.middleware import MIDDLEWARE
from httpd.server.write_buffers import bounded_buffers
from registry.answers.encoding import PIECE_BYTES, in_pieces
from registry.answers.time_slices import TimeSlices
from registry.answers.wakeups import Wakeups
from registry.errors import NotLoaded, StoreUnavailable, TooManyReaders
from registry.nodes.directory import Directory, Entry
from registry.nodes.filters import Filters
from registry.nodes.history import MAX_BYTES_AT_ONCE, ChangeHistory, EventKind, PastChange, Position
from registry.nodes.queries import NodeQueries

COMMENT_SECONDS = 15.0
CHANGES_PER_PIECE = 100
MAX_WATCHERS = 2000
MAX_SHARED_PIECES = 32
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy is to pass on each event at once
    "Server": SERVER,
}
Parts = list[bytes]


class WatcherTooSlow(Exception):
    """The changes that come next for a client are no longer kept."""


class Watch:
    """Sends each client the nodes and their changes, as far as it takes them.

    A client that sends the id of its last event gets what has changed since. If that is no longer
    known, or it sends none, it gets `reset` and then all nodes.
    """

    def __init__(
        self,
        *,
        queries: NodeQueries,
        directory: Directory,
        history: ChangeHistory,
        wakeups: Wakeups,
        slices: TimeSlices,
    ) -> None:
        self._queries = queries
        self._directory = directory
        self._history = history
        self._wakeups = wakeups
        self._slices = slices
        self._watchers = 0
        self._shared: OrderedDict[tuple[int, int, Filters], Parts] = OrderedDict()

    def __len__(self) -> int:
        return self._watchers

    async def respond(self, request: web.Request, filters: Filters) -> web.StreamResponse:
        """Answer 200 with events until the client leaves, the keys are reloaded or reads fail.

        Raises StoreUnavailable, NotLoaded, TooManyReaders.
        """
        await self._queries.require_readable()
        if self._watchers >= MAX_WATCHERS:
            raise TooManyReaders(f"{MAX_WATCHERS} clients watch at present; ask again")
        response = web.StreamResponse(headers=HEADERS)
        self._watchers += 1
        try:
            with bounded_buffers(request, high=PIECE_BYTES):
                await response.prepare(request)
                if request.method != "HEAD":
                    await self._send(request, response, filters)
                await response.write_eof()
        except (WatcherTooSlow, NotLoaded, StoreUnavailable):
            if not response.prepared:
                raise
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watchers -= 1
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, filters: Filters
    ) -> None:
        keyring = request.app[MIDDLEWARE].keyring
        version = keyring.version
        position = self._history.position_of(request.headers.get("Last-Event-ID", ""))
        if position is None:
            position = Position(self._history.last, "")
            await response.write(b"".join(self._event("reset", [b"{}"], position)))
        silent_since = time.monotonic()
        while keyring.version == version and not self._wakeups.is_closed:
            self._queries.require_available()
            async with self._slices.turn():
                parts, position = self._following(position, filters)
            for piece in in_pieces(parts):
                await response.write(piece)
            silent_seconds = time.monotonic() - silent_since
            if parts or silent_seconds >= COMMENT_SECONDS:
                if not parts:  # the id is that of now, though no event of it was for this client
                    await response.write(b": \nid: %b\n\n" % self._id(position))
                silent_since = time.monotonic()
            elif self._is_up_to_date(position):
                await self._wakeups.wait(COMMENT_SECONDS - silent_seconds)

    def _is_up_to_date(self, position: Position) -> bool:
        return position == Position(self._history.last)

    def _following(self, position: Position, filters: Filters) -> tuple[Parts, Position]:
        """Return the next events, and the position after them; raises WatcherTooSlow.

        While the nodes are being listed, changes of those that were listed already come first.
        """
        changes = self._history.after(position.number, CHANGES_PER_PIECE)
        if changes is None:
            raise WatcherTooSlow
        if not changes:
            return self._listed(position, filters)
        end = position._replace(number=position.number + len(changes))
        if position.listed is not None:
            return list(self._events(changes, position, filters)), end
        key = position.number, end.number, filters
        if key not in self._shared:
            self._shared[key] = list(self._events(changes, position, filters))
            if len(self._shared) > MAX_SHARED_PIECES:
                self._shared.popitem(last=False)
        return self._shared[key], end

    def _events(
        self, changes: Iterable[PastChange], position: Position, filters: Filters
    ) -> Iterator[bytes]:
        """Return the events of changes; those of nodes that are not listed yet are left out."""
        matches = filters.matcher()
        for number, change in enumerate(changes, position.number + 1):
            if position.listed is not None and change.hostname > position.listed:
                continue
            kind = change.kind_for(matches)
            if kind is not None:
                data = _node(change.head, change.last_update) if kind == "node" else _name(change)
                yield from self._event(kind, data, position._replace(number=number))

    def _listed(self, position: Position, filters: Filters) -> tuple[Parts, Position]:
        """Return the events of the next nodes of the list, and the position after them."""
        if position.listed is None:
            return [], position
        parts: Parts = []
        matches = filters.matcher()
        scanned = 0
        following = Position(position.number)
        for entry in self._unlisted(position.listed, again=position.again):
            following = Position(position.number, entry.hostname)
            if matches(entry.head, entry.labels_start()):
                parts += self._node_events(entry, following)
            scanned += len(entry.head)
            if scanned > MAX_BYTES_AT_ONCE:
                break
        return parts, following

    def _unlisted(self, listed: str, *, again: bool) -> list[Entry]:
        entry = self._directory.get(listed) if again else None
        following = self._directory.following(listed)
        return following if entry is None else [entry, *following]

    def _node_events(self, entry: Entry, position: Position) -> Parts:
        """Return the events that describe a node; the last one has the id of the position."""
        node = _node(entry.head, entry.last_update)
        if not self._directory.is_stale(entry):
            return self._event("node", node, position)
        first = self._event("node", node, position._replace(again=True))
        return first + self._event("stale", _name(entry), position)

    def _event(self, kind: EventKind | Literal["reset"], data: Parts, position: Position) -> Parts:
        """Return an event in parts, of which a large one is shared with the directory."""
        return [b"id: %b\nevent: %b\ndata: " % (self._id(position), kind.encode()), *data, b"\n\n"]

    def _id(self, position: Position) -> bytes:
        return self._history.id_of(position).encode()


def _node(head: bytes, last_update: int) -> Parts:
    return [head, b"%d}" % last_update]


def _name(node: PastChange | Entry) -> Parts:
    return [msgspec.json.encode({"hostname": node.hostname})]
