"""The registry's parts, put together."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from httpd.app import build_app
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics
from registry.api.access import permits
from registry.api.nodes import STATUS_BY_ERROR, NodesApi, PrometheusApi
from registry.metrics import NodesCollector
from registry.nodes.directory import Directory
from registry.nodes.events import AuditCallback
from registry.nodes.freshness import Freshness
from registry.nodes.nodes import Nodes
from registry.prometheus.index import TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions
from registry.store.protocol import NodeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryComponents:
    """What is behind the routes."""

    directory: Directory
    index: TargetIndex
    nodes: Nodes
    target_options: TargetOptions
    scrapers: Scrapers


def build_components(
    *,
    store: NodeStore,
    target_options: TargetOptions,
    freshness: Freshness,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    audit: AuditCallback,
) -> RegistryComponents:
    """Build the rules on a store that is not loaded yet."""
    directory = Directory()
    index = TargetIndex(directory=directory, target_options=target_options)
    nodes = Nodes(
        store=store,
        directory=directory,
        index=index,
        freshness=freshness,
        clock=clock,
        monotonic=monotonic,
        audit=audit,
    )
    return RegistryComponents(
        directory=directory,
        index=index,
        nodes=nodes,
        target_options=target_options,
        scrapers=Scrapers(monotonic=monotonic),
    )


def build_application(
    registry: RegistryComponents,
    *,
    keyring: Keyring,
    metrics: CollectorRegistry,
    request_metrics: RequestMetrics,
    open_metrics: bool,
    open_swagger: bool,
    log: FilteringBoundLogger,
) -> web.Application:
    """Put the rules behind HTTP."""
    nodes, index, scrapers = registry.nodes, registry.index, registry.scrapers
    metrics.register(
        NodesCollector(nodes=nodes, directory=registry.directory, index=index, scrapers=scrapers)
    )
    targets = PrometheusApi(
        nodes=nodes, index=index, target_options=registry.target_options, scrapers=scrapers
    )
    return build_app(
        routes=[*NodesApi(nodes=nodes).routes(), *targets.routes()],
        keyring=keyring,
        permits=permits,
        statuses=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        unavailable_reason=lambda: nodes.unavailable_reason,
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        log=log,
    )
