"""The parts of the registry, built and connected from plain values."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from config.registry import NodesSettings
from httpd.app import build_app
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics
from registry.answers.readers import Readers
from registry.answers.time_slices import TimeSlices
from registry.answers.wakeups import Wakeups
from registry.api.access import permits
from registry.api.nodes import BODY_LIMITS, NodesApi
from registry.api.representation import Answers
from registry.api.targets import TargetsApi
from registry.api.warming import WarmingHeader
from registry.api.watch import Watch
from registry.errors import STATUS_BY_ERROR
from registry.metrics import NodeMetrics, register_reader_metrics
from registry.nodes.acceptance.capacity import Capacity
from registry.nodes.acceptance.change_limit import ChangeLimit
from registry.nodes.acceptance.rules import Acceptance
from registry.nodes.audit import AUDITED, AuditLog
from registry.nodes.directory import Directory
from registry.nodes.events import NodeEvents
from registry.nodes.freshness import Clocks, Freshness
from registry.nodes.history import FOLLOWED, ChangeHistory
from registry.nodes.nodes import Nodes
from registry.nodes.queries import NodeQueries
from registry.nodes.warm_up import WarmUp
from registry.prometheus.index import INDEXED, TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions
from registry.store.protocol import NodeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryComponents:
    """The parts behind the routes."""

    directory: Directory
    events: NodeEvents
    index: TargetIndex
    nodes: Nodes
    queries: NodeQueries
    history: ChangeHistory
    wakeups: Wakeups
    slices: TimeSlices
    warm_up: WarmUp
    scrapers: Scrapers
    audit: AuditLog

    async def load(self) -> None:
        """Read the store; from then on nodes are served. Raises StoreOpenError."""
        await self.nodes.load(self.slices)
        self.warm_up.begin()  # before any request sees the nodes


def build_components(
    *,
    store: NodeStore,
    target_options: TargetOptions,
    freshness: Freshness,
    limits: NodesSettings,
    clocks: Clocks,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> RegistryComponents:
    """Build the rules on a store that is not loaded yet, and whatever subscribes to changes."""
    directory, events = Directory(), NodeEvents(log)
    nodes = Nodes(
        store=store,
        directory=directory,
        events=events,
        acceptance=Acceptance(
            freshness=freshness,
            capacity=Capacity(max_mib=limits.max_mib),
            change_limit=ChangeLimit(
                per_minute=limits.changes_per_minute, monotonic=clocks.monotonic
            ),
            monotonic=clocks.monotonic,
        ),
        clocks=clocks,
    )
    slices = TimeSlices()
    queries = NodeQueries(
        nodes=nodes, directory=directory, slices=slices, monotonic=clocks.monotonic
    )
    index = TargetIndex(directory=directory, target_options=target_options, slices=slices)
    scrapers = Scrapers(monotonic=clocks.monotonic)
    history, wakeups = ChangeHistory(), Wakeups()
    warm_up = WarmUp(store=store, seconds=limits.warm_up, monotonic=clocks.monotonic, log=log)
    node_metrics = NodeMetrics(
        metrics, nodes=nodes, warm_up=warm_up, index=index, scrapers=scrapers
    )
    events.subscribe(history.record, FOLLOWED)
    events.subscribe(lambda _change: wakeups.notify(), FOLLOWED)
    events.subscribe(index.on_change, INDEXED)
    events.subscribe(node_metrics.count)
    audit = AuditLog(log)
    events.subscribe(audit.record, AUDITED)
    return RegistryComponents(
        directory=directory,
        events=events,
        index=index,
        nodes=nodes,
        queries=queries,
        history=history,
        wakeups=wakeups,
        slices=slices,
        warm_up=warm_up,
        scrapers=scrapers,
        audit=audit,
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
    """Build the HTTP application over the rules."""
    nodes, queries, warm_up = registry.nodes, registry.queries, registry.warm_up
    readers = Readers()
    answers = Answers(slices=registry.slices, readers=readers)
    watch = Watch(
        queries=queries,
        directory=registry.directory,
        history=registry.history,
        wakeups=registry.wakeups,
        slices=registry.slices,
    )
    register_reader_metrics(metrics, readers=readers, watch=watch)
    targets = TargetsApi(
        warm_up=warm_up,
        queries=queries,
        answers=answers,
        index=registry.index,
        scrapers=registry.scrapers,
    )
    app = build_app(
        routes=[
            *NodesApi(nodes=nodes, queries=queries, answers=answers, watch=watch).routes(),
            *targets.routes(),
        ],
        keyring=keyring,
        permits=permits,
        body_limits=BODY_LIMITS,
        status_by_error=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        unavailable_reason=lambda: nodes.unavailable_reason,
        health=lambda: warm_up.reason or "ok",
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        log=log,
    )
    app.cleanup_ctx.append(partial(_open_wakeups, registry.wakeups))
    app.on_shutdown.append(partial(_close_wakeups, registry.wakeups))
    app.on_response_prepare.append(WarmingHeader(warm_up).__call__)
    return app


async def _open_wakeups(wakeups: Wakeups, _app: web.Application) -> AsyncIterator[None]:
    async with wakeups:
        yield


async def _close_wakeups(wakeups: Wakeups, _app: web.Application) -> None:
    """End what waits for changes, since a shutdown waits for the responses."""
    wakeups.close()
