"""/nodes: heartbeats in, nodes out."""

import ipaddress

import msgspec
from aiohttp import web

from httpd.access_log import QUIET
from httpd.auth import Caller, caller
from httpd.bodies import (
    BodyLimits,
    decode,
    encoded_json_response,
    message_response,
    query,
    request_body,
)
from registry.api.queries import filters, single
from registry.api.representation import conditional_response
from registry.message import MAX_BODY_BYTES, Heartbeat, has_unique_keys, normalise_hostname
from registry.nodes.events import Source
from registry.nodes.nodes import Nodes

BODY_LIMITS = BodyLimits({("POST", "/nodes/{hostname}"): MAX_BODY_BYTES})


class NodesApi:
    """The handlers of /nodes and /nodes/{hostname}."""

    def __init__(self, *, nodes: Nodes) -> None:
        self._nodes = nodes
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
        """Answer 200 with the array of all nodes that pass the filters, or 304 if unchanged."""
        listing = self._nodes.list(filters(request))
        return await conditional_response(
            request, digest=listing.digest, parts=listing.parts, vary="Accept-Encoding"
        )

    async def show(self, request: web.Request) -> web.Response:
        """Answer 200 with an array of the one node, or 404."""
        query(request, ())
        return encoded_json_response(self._nodes.get(_hostname(request)))

    async def report(self, request: web.Request) -> web.Response:
        """Accept a heartbeat; answer 200 with an array of the node once it is durable.

        409 if a fresh host with another identity has the name, 503 if the store takes nothing.
        """
        query(request, ())
        hostname, source = _hostname(request), _source(request)
        request[QUIET] = True  # the audit log tells what it changes
        body = request_body(request)
        unchanged = self._nodes.accept_unchanged(hostname, body, source)
        if unchanged is not None:
            return encoded_json_response(unchanged)
        heartbeat = decode(body, self._heartbeats, has_unique_keys=has_unique_keys)
        operator = "write" in caller(request).allow
        return encoded_json_response(
            await self._nodes.accept_durably(hostname, heartbeat, body, source, operator=operator)
        )

    async def forget(self, request: web.Request) -> web.Response:
        """Forget a node; answer 200 with a Message, or 404.

        With `agent_id`, answer 409 if another identity has the name.
        """
        agent_id = single(query(request, {"agent_id"}), "agent_id")
        request[QUIET] = True
        hostname = _hostname(request)
        await self._nodes.delete(hostname, _source(request), agent_id=agent_id)
        return message_response(f"{hostname} is forgotten")


def source_of(caller: Caller, address: str) -> Source:
    """Return who sends a request from an address, as the audit log shows it."""
    if address.startswith("::ffff:"):  # IPv4, on a socket that listens for both
        address = str(ipaddress.IPv6Address(address).ipv4_mapped or address)
    return Source(caller.name, address)


def _source(request: web.Request) -> Source:
    return source_of(caller(request), request.remote or "-")


def _hostname(request: web.Request) -> str:
    return normalise_hostname(request.match_info["hostname"])
