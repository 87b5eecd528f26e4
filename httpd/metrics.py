"""What the shell counts of requests, and GET /metrics."""

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


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
        self._durations = Histogram(
            "rollcall_http_request_duration_seconds",
            "Time from a request's headers to its answer.",
            ["route", "method", "status"],
            buckets=BUCKETS,
            registry=metrics,
        )
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
        self._observers: dict[tuple[str, str, int], Callable[[float], None]] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (route, method, status)
        observer = self._observers.get(key)
        if observer is None:
            observer = self._observer(route, method if method in METHODS else "other", status)
            if method in METHODS:
                self._observers[key] = observer
        observer(seconds)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.refusals.labels(str(status)).inc()

    def _observer(self, route: str, method: str, status: int) -> Callable[[float], None]:
        return self._durations.labels(route, method, str(status)).observe


class MetricsPage:
    """GET /metrics, in the format that the scraper asks for."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._metrics = metrics

    async def show(self, request: web.Request) -> web.Response:
        """Answer with every metric."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})
