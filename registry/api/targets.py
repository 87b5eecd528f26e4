"""GET /prometheus/{service}: scrape targets, in two forms, and why a node is among them or not."""

from collections.abc import Mapping

from aiohttp import web
from multidict import MultiMapping

from httpd.auth import caller
from httpd.bodies import json_response, query
from httpd.errors import BadInput
from registry.api.queries import single
from registry.api.representation import Answers
from registry.message import normalise_hostname
from registry.nodes.queries import NodeQueries
from registry.nodes.warm_up import WarmUp
from registry.prometheus.index import TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.target_list import TargetFormat

# Prometheus, and all that embed it, send this header when they ask for targets.
SCRAPER = "X-Prometheus-Refresh-Interval-Seconds"
FORMATS: Mapping[str, TargetFormat] = {"http_sd": "flat", "nested": "nested"}


class TargetsApi:
    """The handler of /prometheus/{service}."""

    def __init__(
        self,
        *,
        queries: NodeQueries,
        answers: Answers,
        warm_up: WarmUp,
        index: TargetIndex,
        scrapers: Scrapers,
    ) -> None:
        self._queries = queries
        self._answers = answers
        self._warm_up = warm_up
        self._index = index
        self._scrapers = scrapers

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/prometheus/{service}", self.targets)]

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
            return json_response(await self._index.explain(entry, service))
        target_format = _target_format(request, parameters)
        await self._queries.require_readable()
        self._warm_up.require_over()
        vary = f"{SCRAPER}, Accept-Encoding"
        async with self._answers.reading(request) as reader:
            found = await self._index.answer(service, target_format)
            self._scrapers.record_fetch(caller(request).name, request.headers.get("User-Agent", ""))
            try:
                return await self._answers.respond(request, reader, found, vary=vary)
            finally:
                size = found.size + self._answers.compressed_bytes(found)
                self._index.record_use(service, target_format, size)


def _target_format(request: web.Request, parameters: MultiMapping[str]) -> TargetFormat:
    requested = single(parameters, "format")
    if requested is None:
        return "flat" if SCRAPER in request.headers else "nested"
    if requested not in FORMATS:
        raise BadInput("the query parameter `format` is http_sd or nested")
    return FORMATS[requested]
