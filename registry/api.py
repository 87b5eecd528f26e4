"""The registry over HTTP: /nodes and /prometheus/{service}."""

import ipaddress
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web
from multidict import MultiMapping

from httpd.access_log import QUIET
from httpd.auth import Caller, caller
from httpd.bodies import answer, decode, encoded, message, query, read
from httpd.errors import BadInput
from registry.changes import Source
from registry.consumers import Consumers
from registry.explain import explain
from registry.filters import Filters
from registry.heartbeat import (
    MAX_BODY_BYTES,
    Heartbeat,
    HostnameInvalid,
    normalise_hostname,
    surely_unique,
)
from registry.nodes import Nodes
from registry.prometheus import Rules
from registry.refusals import HostnameDiffers, HostnameTaken, NodeUnknown, NotLoaded
from registry.representation import represent
from registry.scrape_index import ScrapeIndex
from registry.scrape_service import Shape
from registry.store import StoreUnavailable

STATUSES: Mapping[type[Exception], int] = {
    HostnameInvalid: HTTPStatus.BAD_REQUEST,
    HostnameDiffers: HTTPStatus.BAD_REQUEST,
    NodeUnknown: HTTPStatus.NOT_FOUND,
    HostnameTaken: HTTPStatus.CONFLICT,
    NotLoaded: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
SCRAPER = "X-Prometheus-Refresh-Interval-Seconds"
FORMATS: Mapping[str, Shape] = {"http_sd": "flat", "nested": "nested"}


class NodesApi:
    """Handlers of /nodes."""

    def __init__(self, *, nodes: Nodes) -> None:
        self._nodes = nodes
        self._heartbeats = msgspec.json.Decoder(Heartbeat)

    def routes(self) -> list[web.RouteDef]:
        """Give the routes."""
        return [
            web.get("/nodes", self.list),
            web.get("/nodes/{hostname}", self.show),
            web.post("/nodes/{hostname}", self.report),
            web.delete("/nodes/{hostname}", self.forget),
        ]

    async def list(self, request: web.Request) -> web.StreamResponse:
        """Answer with all nodes, or those that the filters let through."""
        filters = _filters(query(request, {"label", "prefix", "kv", "max_age"}))
        listing = self._nodes.list(filters)
        return await represent(
            request, digest=listing.digest, parts=listing.parts, vary="Accept-Encoding"
        )

    async def show(self, request: web.Request) -> web.Response:
        """Answer with one node."""
        query(request, ())
        return encoded(self._nodes.get(_hostname(request)))

    async def report(self, request: web.Request) -> web.Response:
        """Take a heartbeat; answer with the node when it is durable."""
        query(request, ())
        hostname, source = _hostname(request), _source(request)
        request[QUIET] = True  # what it changes, the audit log tells
        body = await read(request, limit=MAX_BODY_BYTES)
        refreshed = self._nodes.refresh(hostname, body, source)
        if refreshed is not None:
            return encoded(refreshed)
        heartbeat = decode(body, self._heartbeats, unique=surely_unique)
        operator = "write" in caller(request).allow
        return encoded(
            await self._nodes.record(hostname, heartbeat, body, source, operator=operator)
        )

    async def forget(self, request: web.Request) -> web.Response:
        """Take a node off the roll; with `agent_id` only where that identity holds the name."""
        agent_id = _one(query(request, {"agent_id"}), "agent_id")
        request[QUIET] = True
        hostname = _hostname(request)
        await self._nodes.delete(hostname, _source(request), agent_id=agent_id)
        return message(f"{hostname} is forgotten")


class PrometheusApi:
    """Handlers of /prometheus."""

    def __init__(
        self, *, nodes: Nodes, index: ScrapeIndex, rules: Rules, consumers: Consumers
    ) -> None:
        self._nodes = nodes
        self._index = index
        self._rules = rules
        self._consumers = consumers

    def routes(self) -> list[web.RouteDef]:
        """Give the routes."""
        return [web.get("/prometheus/{service}", self.targets)]

    async def targets(self, request: web.Request) -> web.StreamResponse:
        """Answer with the service's targets, or with why a node is or is not among them."""
        parameters = query(request, {"format", "explain"})
        service = request.match_info["service"]
        if "explain" in parameters:
            entry = self._nodes.entry(normalise_hostname(_one(parameters, "explain") or ""))
            return answer(explain(entry, service=service, rules=self._rules))
        shape = _shape(request, parameters)
        self._nodes.readable()
        found = await self._index.answer(service, shape)
        self._consumers.fetched(caller(request).name, request.headers.get("User-Agent", ""))
        return await represent(
            request,
            digest=found.digest,
            parts=found.parts,
            vary=f"{SCRAPER}, Accept-Encoding",
        )


def _hostname(request: web.Request) -> str:
    return normalise_hostname(request.match_info["hostname"])


def source_of(caller: Caller, address: str) -> Source:
    """Tell who asks, from which address, as the log has it."""
    if address.startswith("::ffff:"):  # IPv4, on a socket that listens for both
        address = str(ipaddress.IPv6Address(address).ipv4_mapped or address)
    return Source(caller.name, address)


def _source(request: web.Request) -> Source:
    return source_of(caller(request), request.remote or "-")


def _one(parameters: MultiMapping[str], name: str) -> str | None:
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadInput(f"the query parameter `{name}` is given more than once")
    return values[0] if values else None


def _shape(request: web.Request, parameters: MultiMapping[str]) -> Shape:
    asked = _one(parameters, "format")
    if asked is None:
        return "flat" if SCRAPER in request.headers else "nested"
    if asked not in FORMATS:
        raise BadInput("the query parameter `format` is http_sd or nested")
    return FORMATS[asked]


def _filters(parameters: MultiMapping[str]) -> Filters:
    max_age = _one(parameters, "max_age")
    return Filters(
        labels=tuple(parameters.getall("label", ())),
        prefixes=tuple(parameters.getall("prefix", ())),
        kv=tuple(_pair(text) for text in parameters.getall("kv", ())),
        max_age=None if max_age is None else _seconds(max_age),
    )


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadInput("the query parameter `kv` is KEY:VALUE, such as kv=rack:r12")
    return key, value


def _seconds(text: str) -> float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit()):
        raise BadInput("the query parameter `max_age` is a number of seconds, such as max_age=90")
    return float(text)
