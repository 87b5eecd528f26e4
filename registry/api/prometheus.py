"""Scrape targets in two forms, all services, and why a node is among the targets or not."""

from collections.abc import Mapping

import msgspec
from aiohttp import web
from multidict import MultiMapping

from clients.message import normalise_hostname
from httpd.bodies import query
from httpd.errors import BadInput
from registry.api.access import request_source
from registry.api.queries import single
from registry.api.representation import Answers
from registry.nodes.directory import KnownNode
from registry.prometheus.answers import TargetFormat
from registry.prometheus.targets import MAX_REPEATED
from registry.registry import Registry
from registry.responses.readers import Expected

# Prometheus, and all that embed it, send this header when they ask for targets.
SCRAPER = "X-Prometheus-Refresh-Interval-Seconds"
# The command of operators, who only look.
OPERATOR = "rollcall"
# Of a service in the answer to GET /services.
SERVICE_BYTES = 200
# What is explained of a smaller node takes no more than any reader does.
SMALL_NODE_BYTES = 4 * 1024
FORMATS: Mapping[str, TargetFormat] = {"http_sd": "flat", "nested": "nested"}


class TargetsApi:
    """The handlers of /prometheus/{service}, /services and /nodes/{hostname}/explain."""

    def __init__(self, registry: Registry, answers: Answers) -> None:
        self._queries = registry.queries
        self._answers = answers
        self._warm_up = registry.warm_up
        self._index = registry.index
        self._scrapers = registry.scrapers

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/services", self.services),
            web.get("/prometheus/{service}", self.targets),
            web.get("/nodes/{hostname}/explain", self.explain_node),
        ]

    async def services(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with all services, also while the registry warms up, or 304."""
        query(request, ())
        await self._queries.prepare_read()
        expected = Expected("services", SERVICE_BYTES * len(self._index))
        async with self._answers.reading(request, expected=expected) as reader:
            found = await self._index.services(self._scrapers.by_service)
            return await self._answers.respond(request, reader, found, vary="Accept-Encoding")

    async def explain_node(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with what becomes of the labels of a node, for all services; or 404."""
        query(request, ())
        hostname = normalise_hostname(request.match_info["hostname"])
        entry = await self._queries.entry(hostname)
        async with self._answers.reading(request, expected=_explanation_of(entry)) as reader:
            explained = await self._index.explain_all(entry, age=self._queries.seconds_since(entry))
            return await self._answers.respond_whole(request, reader, explained)

    async def targets(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 with the service's targets, or 304 if the client has them already.

        A scraper gets the form of http_sd, others the documented, nested one; `format` chooses.
        503 while the registry warms up: an answer that lacks nodes would take their targets away.
        With `explain=HOSTNAME`, answer 200 with an Explanation, or 404 for an unknown host.
        """
        parameters = query(request, {"format", "explain"})
        service = request.match_info["service"]
        if "explain" in parameters:
            hostname = normalise_hostname(single(parameters, "explain") or "")
            entry = await self._queries.entry(hostname)
            async with self._answers.reading(request, expected=_explanation_of(entry)) as reader:
                explained = msgspec.json.encode(await self._index.explain(entry, service))
                return await self._answers.respond_whole(request, reader, explained)
        target_format = _target_format(request, parameters)
        await self._queries.prepare_read()
        self._warm_up.require_over()
        vary = f"{SCRAPER}, Accept-Encoding"
        async with self._answers.reading(request) as reader:
            found = await self._index.answer(service, target_format)
            self._record_fetch(request, service, target_format)
            try:
                return await self._answers.respond(request, reader, found, vary=vary)
            finally:
                size = found.size + self._answers.compression.made_bytes(found)
                await self._index.record_use(service, target_format, size)

    def _record_fetch(
        self, request: web.Request, service: str, target_format: TargetFormat
    ) -> None:
        """Record who asks; those who take the form of http_sd scrape the service."""
        source, user_agent = request_source(request), request.headers.get("User-Agent", "")
        self._scrapers.record_fetch(source.caller, user_agent)
        if target_format == "flat" and user_agent != OPERATOR:
            self._scrapers.record_service(service, source.caller, source.address)


def _explanation_of(entry: KnownNode) -> Expected:
    """Return what an explanation takes at most, and as much for the node that it decodes."""
    return Expected(object(), 2 * MAX_REPEATED if len(entry.head) > SMALL_NODE_BYTES else 0)


def _target_format(request: web.Request, parameters: MultiMapping[str]) -> TargetFormat:
    requested = single(parameters, "format")
    if requested is None:
        return "flat" if SCRAPER in request.headers else "nested"
    if requested not in FORMATS:
        raise BadInput("the query parameter `format` is http_sd or nested")
    return FORMATS[requested]
