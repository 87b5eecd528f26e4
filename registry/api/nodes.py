"""/nodes: heartbeats in, nodes out."""

import asyncio
from hashlib import sha256

import msgspec
from aiohttp import web

from clients.message import MAX_BODY_BYTES, Heartbeat, has_unique_keys, normalise_hostname
from httpd.access_log import QUIET
from httpd.auth import caller
from httpd.bodies import (
    BODY,
    BodyLimits,
    decode,
    encoded_json_response,
    message_response,
    query,
    request_body,
)
from registry.api.access import request_source
from registry.api.queries import (
    ADDRESS,
    FILTERS,
    SELECTION,
    WATCH,
    is_only_stale,
    is_watch,
    is_with_address,
    selection,
    single,
    watch_filters,
)
from registry.api.representation import MAX_UNSTREAMED_BYTES, Answers, next_page
from registry.api.watch import NodeWatch, View
from registry.errors import StoreUnavailable
from registry.nodes.directory import KnownNode
from registry.nodes.heartbeats import Report
from registry.nodes.limits import MAX_BYTES_AT_ONCE
from registry.nodes.listing import Listing
from registry.registry import Registry
from registry.responses.readers import Expected

BODY_LIMITS = BodyLimits({("POST", "/nodes/{hostname}"): MAX_BODY_BYTES})


class NodesApi:
    """The handlers of /nodes and /nodes/{hostname}."""

    def __init__(self, registry: Registry, answers: Answers, watch: NodeWatch) -> None:
        self._nodes = registry.nodes
        self._queries = registry.queries
        self._answers = answers
        self._watch = watch
        self._heartbeats = msgspec.json.Decoder(Heartbeat)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/nodes", self.list),
            web.get("/nodes/{hostname}", self.show),
            web.post("/nodes/{hostname}", self.report),
            web.delete("/nodes/{hostname}", self.forget),
        ]

    async def list(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with the array of the nodes that are selected, or 304 if it is unchanged.

        With `limit` and `after`, it is a page; the header Link says where the next one is, and with
        `total`, Rollcall-Total how many nodes all pages have, unless they are too many. With
        `watch`, the answer is events instead, and does not end. `address` adds that of each node.
        """
        parameters = query(request, (*FILTERS, *SELECTION, WATCH, ADDRESS))
        if is_watch(parameters):
            view = View(watch_filters(parameters), is_with_address(parameters))
            return await self._watch.respond(request, view)
        selected = selection(parameters)
        expected = Expected(selected, self._queries.expected_bytes(selected))
        async with self._answers.reading(request, expected=expected) as reader:
            listing = await self._queries.list(selected)
            return await self._answers.respond(
                request, reader, listing, vary="Accept-Encoding", headers=_headers(request, listing)
            )

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with an array of the one node, or 404."""
        address = is_with_address(query(request, (ADDRESS,)))
        entry = await self._queries.entry(_hostname(request))
        if len(entry.head) <= MAX_UNSTREAMED_BYTES:
            return encoded_json_response(_array(entry, address=address))
        expected = Expected(object(), len(entry.head))
        async with self._answers.reading(request, expected=expected) as reader:
            node = _array(entry, address=address)
            return await self._answers.respond_whole(request, reader, node)

    async def report(self, request: web.Request) -> web.StreamResponse:
        """Accept a heartbeat; answer 200 with an array of the node once it is durable.

        409 if a fresh host with the name has another identity, if the heartbeat has none and the
        key may not write, or if its instance of the agent was replaced; 429 if it changes too often
        or sends too much, 503 if the store takes nothing.
        """
        query(request, ())
        hostname, source = _hostname(request), request_source(request)
        request[QUIET] = True  # the audit log has what it changes
        body = request_body(request)
        operator = "write" in caller(request).allow
        report = Report(hostname, sha256(body).digest(), source, operator)
        response = self._nodes.heartbeats.accept_unchanged(report)
        if response is None:
            response = await self._accepted(report, body)
        if len(response) <= MAX_UNSTREAMED_BYTES:
            return encoded_json_response(response)
        request[BODY] = body = response = b""  # a client that waits for its turn holds neither

        async def current() -> bytes:
            return _array(await self._queries.entry(hostname))

        return await self._answers.confirm(request, current)

    async def _accepted(self, report: Report, body: bytes) -> bytes:
        """Accept a heartbeat that cannot be answered at once; return the answer."""
        heartbeats = self._nodes.heartbeats
        is_large = len(body) > MAX_BYTES_AT_ONCE
        with heartbeats.limits.room_for(body):
            try:
                response = await heartbeats.accept_unchanged_later(report)
            except StoreUnavailable:
                if not is_large:
                    heartbeats.note_alive(report.hostname, self._decode(body))
                raise
            if response is not None:
                return response
            heartbeats.take_bytes(report.hostname, body)
            if is_large:
                heartbeat = await asyncio.to_thread(self._decode, body)
            else:
                heartbeat = self._decode(body)
            return await heartbeats.accept_durably(report, heartbeat, is_large=is_large)

    def _decode(self, body: bytes) -> Heartbeat:
        return decode(body, self._heartbeats, has_unique_keys=has_unique_keys)

    async def forget(self, request: web.Request) -> web.Response:
        """Forget a node; answer 200 with a Message, or 404.

        With `agent_id`, answer 409 if another identity has the name; with `stale`, if it is fresh.
        """
        parameters = query(request, {"agent_id", "stale"})
        agent_id, only_stale = single(parameters, "agent_id"), is_only_stale(parameters)
        request[QUIET] = True
        hostname = _hostname(request)
        source = request_source(request)
        await self._nodes.delete(hostname, source, agent_id=agent_id, only_stale=only_stale)
        return message_response(f"{hostname} is forgotten")


def _headers(request: web.Request, listing: Listing) -> dict[str, str]:
    total = {} if listing.total is None else {"Rollcall-Total": str(listing.total)}
    return total | next_page(request, listing.next_after)


def _array(entry: KnownNode, *, address: bool = False) -> bytes:
    return b"[%b]" % entry.encoded(address=address)


def _hostname(request: web.Request) -> str:
    return normalise_hostname(request.match_info["hostname"])
