"""The registry's parts, put together."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from httpd.app import build_app
from httpd.auth import Keyring
from httpd.instant import Instant
from httpd.metrics import RequestMetrics
from registry.access import permits
from registry.api import STATUSES, NodesApi, PrometheusApi
from registry.changes import Audit
from registry.consumers import Consumers
from registry.directory import Directory
from registry.freshness import Freshness
from registry.instant import InstantAnswers
from registry.metrics import NodesCollector
from registry.nodes import Nodes
from registry.prometheus import Rules
from registry.scrape_index import ScrapeIndex
from registry.store import NodeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """What is behind the routes."""

    directory: Directory
    index: ScrapeIndex
    nodes: Nodes
    rules: Rules
    consumers: Consumers


def assemble(
    *,
    store: NodeStore,
    rules: Rules,
    freshness: Freshness,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    audit: Audit,
) -> Registry:
    """Build the rules on a store that is not loaded yet."""
    directory = Directory()
    index = ScrapeIndex(directory=directory, rules=rules)
    nodes = Nodes(
        store=store,
        directory=directory,
        index=index,
        freshness=freshness,
        clock=clock,
        monotonic=monotonic,
        audit=audit,
    )
    return Registry(
        directory=directory,
        index=index,
        nodes=nodes,
        rules=rules,
        consumers=Consumers(monotonic=monotonic),
    )


def application(
    registry: Registry,
    *,
    keyring: Keyring,
    metrics: CollectorRegistry,
    request_metrics: RequestMetrics,
    open_metrics: bool,
    open_swagger: bool,
    log: FilteringBoundLogger,
) -> web.Application:
    """Put the rules behind HTTP."""
    nodes, index, consumers = registry.nodes, registry.index, registry.consumers
    metrics.register(
        NodesCollector(nodes=nodes, directory=registry.directory, index=index, consumers=consumers)
    )
    targets = PrometheusApi(nodes=nodes, index=index, rules=registry.rules, consumers=consumers)
    return build_app(
        routes=[*NodesApi(nodes=nodes).routes(), *targets.routes()],
        keyring=keyring,
        permits=permits,
        statuses=STATUSES,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        trouble=lambda: nodes.trouble,
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        log=log,
    )


def instant_answers(
    registry: Registry, *, keyring: Keyring, metrics: RequestMetrics, log: FilteringBoundLogger
) -> Instant:
    """Make what answers the two routes that a fleet and its scrapers ask all the time."""
    answers = InstantAnswers(
        nodes=registry.nodes, index=registry.index, consumers=registry.consumers
    )
    return Instant(
        [
            ("POST", "/nodes/{hostname}", answers.heartbeat),
            ("GET", "/prometheus/{service}", answers.targets),
        ],
        declined={"POST": (), "GET": ("Accept-Encoding", "If-None-Match")},
        keyring=keyring,
        metrics=metrics,
        log=log,
    )
