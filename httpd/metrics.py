"""Metrics of requests and connections, and GET /metrics."""

import asyncio
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

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})


def new_metrics() -> CollectorRegistry:
    """Return a registry for one daemon's metrics, with the metrics of its process."""
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
            "Connections answered with 503 since there were too many, all of them busy.",
            registry=metrics,
        )
        self.connections_cut_off = Counter(
            "rollcall_http_connections_cut_off_total",
            "Connections closed before the client was done, by reason.",
            ["reason"],
            registry=metrics,
        )
        for reason in ("no_request", "slow_head", "stalled", "memory", "room", "stop"):
            self.connections_cut_off.labels(reason)
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
        self._known: dict[tuple[str, str, int], Histogram] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        durations = self._known.get((route, method, status))
        if durations is None:
            durations = self._series(route, method, status)
        durations.observe(seconds)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self.refusals.labels(str(status)).inc()

    def _series(self, route: str, method: str, status: int) -> Histogram:
        if method not in KNOWN_METHODS:  # clients can send any number of methods
            return self._durations.labels(route, "other", str(status))
        durations = self._durations.labels(route, method, str(status))
        self._known[route, method, status] = durations
        return durations


class MetricsHandler:
    """GET /metrics, in the format that the scraper asks for."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._metrics = metrics
        self._turns = asyncio.Lock()

    async def get(self, request: web.Request) -> web.Response:
        """Answer with every metric. The loop serves others between two scrapers."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._turns:
            body = encode(self._metrics)
            await asyncio.sleep(0)
        return web.Response(body=body, headers={"Content-Type": content_type})
