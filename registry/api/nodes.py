"""The registry over HTTP: /nodes and /prometheus/{service}."""

import ipaddress
from collections.abc import Mapping

import msgspec
from aiohttp import web
from multidict import MultiMapping

from httpd.access_log import QUIET
from httpd.auth import Caller, caller
from httpd.bodies import (
    decode,
    encoded_json_response,
    json_response,
    message_response,
    query,
    read_body,
)
from httpd.errors import BadInput
from registry.api.representation import conditional_response
from registry.message import (
    MAX_BODY_BYTES,
    Heartbeat,
    has_unique_keys,
    normalise_hostname,
)
from registry.nodes.events import Source
from registry.nodes.filters import Filters
from registry.nodes.nodes import Nodes
from registry.prometheus.explain import explain
from registry.prometheus.index import TargetFormat, TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions

SCRAPER = "X-Prometheus-Refresh-Interval-Seconds"
FORMATS: Mapping[str, TargetFormat] = {"http_sd": "flat", "nested": "nested"}


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
        return await conditional_response(
            request, digest=listing.digest, parts=listing.parts, vary="Accept-Encoding"
        )

    async def show(self, request: web.Request) -> web.Response:
        """Answer with one node."""
        query(request, ())
        return encoded_json_response(self._nodes.get(_hostname(request)))

    async def report(self, request: web.Request) -> web.Response:
        """Take a heartbeat; answer with the node when it is durable."""
        query(request, ())
        hostname, source = _hostname(request), _source(request)
        request[QUIET] = True  # what it changes, the audit log tells
        body = await read_body(request, limit=MAX_BODY_BYTES)
        unchanged = self._nodes.accept_unchanged(hostname, body, source)
        if unchanged is not None:
            return encoded_json_response(unchanged)
        heartbeat = decode(body, self._heartbeats, has_unique_keys=has_unique_keys)
        operator = "write" in caller(request).allow
        return encoded_json_response(
            await self._nodes.accept_durably(hostname, heartbeat, body, source, operator=operator)
        )

    async def forget(self, request: web.Request) -> web.Response:
        """Take a node off the roll; with `agent_id` only where that identity holds the name."""
        agent_id = _single(query(request, {"agent_id"}), "agent_id")
        request[QUIET] = True
        hostname = _hostname(request)
        await self._nodes.delete(hostname, _source(request), agent_id=agent_id)
        return message_response(f"{hostname} is forgotten")


class PrometheusApi:
    """Handlers of /prometheus."""

    def __init__(
        self, *, nodes: Nodes, index: TargetIndex, target_options: TargetOptions, scrapers: Scrapers
    ) -> None:
        self._nodes = nodes
        self._index = index
        self._target_options = target_options
        self._scrapers = scrapers

    def routes(self) -> list[web.RouteDef]:
        """Give the routes."""
        return [web.get("/prometheus/{service}", self.targets)]

    async def targets(self, request: web.Request) -> web.StreamResponse:
        """Answer with the service's targets, or with why a node is or is not among them."""
        parameters = query(request, {"format", "explain"})
        service = request.match_info["service"]
        if "explain" in parameters:
            entry = self._nodes.entry(normalise_hostname(_single(parameters, "explain") or ""))
            return json_response(
                explain(entry, service=service, target_options=self._target_options)
            )
        target_format = _target_format(request, parameters)
        self._nodes.require_readable()
        found = await self._index.answer(service, target_format)
        self._scrapers.record_fetch(caller(request).name, request.headers.get("User-Agent", ""))
        return await conditional_response(
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


def _single(parameters: MultiMapping[str], name: str) -> str | None:
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadInput(f"the query parameter `{name}` is given more than once")
    return values[0] if values else None


def _target_format(request: web.Request, parameters: MultiMapping[str]) -> TargetFormat:
    requested = _single(parameters, "format")
    if requested is None:
        return "flat" if SCRAPER in request.headers else "nested"
    if requested not in FORMATS:
        raise BadInput("the query parameter `format` is http_sd or nested")
    return FORMATS[requested]


def _filters(parameters: MultiMapping[str]) -> Filters:
    max_age = _single(parameters, "max_age")
    return Filters(
        labels=tuple(parameters.getall("label", ())),
        prefixes=tuple(parameters.getall("prefix", ())),
        kv=tuple(_kv_pair(text) for text in parameters.getall("kv", ())),
        max_age=None if max_age is None else _parse_seconds(max_age),
    )


def _kv_pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadInput("the query parameter `kv` is KEY:VALUE, such as kv=rack:r12")
    return key, value


def _parse_seconds(text: str) -> float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit()):
        raise BadInput("the query parameter `max_age` is a number of seconds, such as max_age=90")
    return float(text)
