"""Metrics of requests, connections and the process, and GET /metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from runtime.periodic import PeriodicTask

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
Expiries = Mapping[Path, float]
DELAY_INTERVAL_SECONDS = 0.5
DELAY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})


def new_metrics() -> CollectorRegistry:
    """Return a registry for one daemon's metrics, with the metrics of its process."""
    metrics = CollectorRegistry()
    ProcessCollector(registry=metrics)
    PlatformCollector(registry=metrics)
    GCCollector(registry=metrics)
    return metrics


class RequestMetrics:
    """Durations by route, method and status; rejections by reason; connections."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._durations = Histogram(
            "rollcall_http_request_duration_seconds",
            "Time from a request's headers to its answer.",
            ["route", "method", "status"],
            buckets=BUCKETS,
            registry=metrics,
        )
        self.rejections = Counter(
            "rollcall_http_rejections_total",
            "Requests answered with a 4xx, by status.",
            ["status"],
            registry=metrics,
        )
        self.connections = Gauge("rollcall_http_connections", "Open connections.", registry=metrics)
        self.connections_rejected = Counter(
            "rollcall_http_connections_rejected_total",
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
            "TLS handshakes, by outcome: done or failed (rejected, interrupted, too slow).",
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
            self.rejections.labels(str(status)).inc()

    def _series(self, route: str, method: str, status: int) -> Histogram:
        if method not in KNOWN_METHODS:  # clients can send any number of methods
            return self._durations.labels(route, "other", str(status))
        durations = self._durations.labels(route, method, str(status))
        self._known[route, method, status] = durations
        return durations


def metrics_handler(metrics: CollectorRegistry) -> Handler:
    """Return the handler of GET /metrics, in the format that the scraper asks for."""
    turns = asyncio.Lock()

    async def get(request: web.Request) -> web.Response:
        """Answer with every metric. The loop serves others between two scrapers."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with turns:
            body = encode(metrics)
            await asyncio.sleep(0)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return get


class CertificateMetrics(Collector):
    """Shows when files of certificates expire; each source returns Unix times by file."""

    def __init__(self, sources: Sequence[Callable[[], Expiries]]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield the metric, with a series for each file."""
        family = GaugeMetricFamily(
            "rollcall_certificate_expiry_timestamp_seconds",
            "When a file of certificates that is in use expires.",
            labels=["file"],
        )
        expiries: dict[Path, float] = {}
        for source in self._sources:
            for file, at in source().items():
                # One source may still use what the file held before.
                expiries[file] = min(at, expiries.get(file, at))
        for file, at in expiries.items():
            family.add_metric([str(file)], at)
        yield family


def measuring_loop(
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> PeriodicTask:
    """Return what measures, while it is open, how much too late the loop wakes a sleeper."""
    delays = Histogram(
        "rollcall_loop_delay_seconds",
        "How late the event loop does what is due, twice a second.",
        buckets=DELAY_BUCKETS,
        registry=metrics,
    )
    time = asyncio.get_running_loop().time

    async def measure() -> None:
        due = time() + DELAY_INTERVAL_SECONDS
        await sleep(DELAY_INTERVAL_SECONDS)
        delays.observe(max(0.0, time() - due))

    return PeriodicTask(interval=0, action=measure, log=log)
