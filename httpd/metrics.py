"""What the shell counts of requests, and GET /metrics."""

from http import HTTPStatus

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from httpd.durations import Durations, RequestDurations

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})


def new_metrics() -> CollectorRegistry:
    """Make the collection of one daemon's metrics, with those of its process in it."""
    metrics = CollectorRegistry()
    ProcessCollector(registry=metrics)
    PlatformCollector(registry=metrics)
    GCCollector(registry=metrics)
    return metrics


class RequestMetrics:
    """Durations by route, method and status; refusals by reason; connections."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._durations = RequestDurations()
        metrics.register(self._durations)
        self.refusals = Counter(
            "rollcall_http_refusals_total",
            "Requests answered with a 4xx, by status.",
            ["status"],
            registry=metrics,
        )
        self.connections = Gauge("rollcall_http_connections", "Open connections.", registry=metrics)
        self.connections_refused = Counter(
            "rollcall_http_connections_refused_total",
            "Connections closed at once since there were too many.",
            registry=metrics,
        )
        self.handshakes = Gauge(
            "rollcall_http_tls_handshakes", "TLS handshakes in progress.", registry=metrics
        )
        self.handshakes_ended = Counter(
            "rollcall_http_tls_handshakes_ended_total",
            "TLS handshakes, by outcome: done or failed (refused, broken off, too slow).",
            ["outcome"],
            registry=metrics,
        )
        for outcome in ("done", "failed"):
            self.handshakes_ended.labels(outcome)
        self._known: dict[tuple[web.AbstractResource | None, str, int], Durations] = {}

    def observe(
        self, resource: web.AbstractResource | None, method: str, status: int, seconds: float
    ) -> None:
        """Count one answered request; a resource of None is a path that does not exist."""
        durations = self._known.get((resource, method, status))
        if durations is None:
            durations = self._get_known(resource, method, status)
        durations.observe(seconds)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.refusals.labels(str(status)).inc()

    def series(self, route: str, method: str, status: int) -> Durations:
        """Give the durations with these labels, for a caller that counts them itself."""
        return self._durations.series(route, method, status)

    def _get_known(
        self, resource: web.AbstractResource | None, method: str, status: int
    ) -> Durations:
        route = resource.canonical if resource else "unmatched"
        if method not in KNOWN_METHODS:  # strangers may invent as many as they like
            return self._durations.series(route, "other", status)
        durations = self._durations.series(route, method, status)
        self._known[resource, method, status] = durations
        return durations


class MetricsHandler:
    """GET /metrics, in the format that the scraper asks for."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._metrics = metrics

    async def get(self, request: web.Request) -> web.Response:
        """Answer with every metric."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})
