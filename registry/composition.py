"""The parts of the registry, built and connected from plain values."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from aiohttp import web

from config import VERSION
from config.registry import is_shared_store
from httpd.app import NO_PROXIES, access_routes, build_app
from httpd.auth import Keyring
from httpd.clients import TrustedProxies
from httpd.metrics import RequestMetrics
from httpd.pages.files import Pages
from httpd.streams.events import EventStreams
from httpd.streams.wakeups import Wakeups
from registry.api.access import permits
from registry.api.headers import StateHeaders
from registry.api.nodes import BODY_LIMITS, NodesApi
from registry.api.prometheus import TargetsApi
from registry.api.representation import Answers
from registry.api.status import Facts, RefusalRecorder, Remembered, RollCallApi, StatusApi
from registry.api.watch import MAX_WATCHERS, Watch
from registry.callbacks.callbacks import Callbacks
from registry.callbacks.sender import ChangeBatches, Parts
from registry.errors import STATUS_BY_ERROR, NotLoaded, StoreUnavailable
from registry.metrics import (
    CallbackMetrics,
    NodeMetrics,
    RollCallMetrics,
    register_reader_metrics,
)
from registry.nodes.change_log import FOLLOWED_KINDS, MAX_BYTES, ChangeHistory
from registry.nodes.changes import AUDITED_KINDS, AuditLog
from registry.nodes.context import RegistryContext
from registry.nodes.heartbeat_counts import HeartbeatHistory, RefusedHosts
from registry.nodes.listing import NodeQueries
from registry.nodes.nodes import Nodes
from registry.nodes.warm_up import WarmUp
from registry.prometheus.index import INDEXED_KINDS, TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions
from registry.responses.readers import Readers
from registry.responses.slices import TimeSlices
from registry.roll_call import ExpectedFile, RollCalls
from registry.store.protocol import as_shared
from registry.store.reachability import ReachabilityLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryComponents:
    """The parts behind the routes."""

    context: RegistryContext
    index: TargetIndex
    nodes: Nodes
    queries: NodeQueries
    history: ChangeHistory
    wakeups: Wakeups
    slices: TimeSlices
    warm_up: WarmUp
    scrapers: Scrapers
    remembered: Remembered
    expected_file: ExpectedFile
    facts: Facts
    audit: AuditLog
    reachability: ReachabilityLog
    callbacks: Callbacks

    async def load(self) -> None:
        """Read the store; from then on nodes are served. Raises StoreOpenError."""
        await self.expected_file.start()
        continues = await self.nodes.load(self.slices)
        self.history.follow(self.nodes.denied.digest)
        self.warm_up.begin(continues=continues)  # before any request sees the nodes
        await self.call_roll()

    async def call_roll(self) -> None:
        """Call the roll, for metrics and the status."""
        await self.remembered.roll_calls.refresh(self.slices)

    async def deny(self, patterns: Collection[str]) -> None:
        """Deny these hosts from now on, and no others.

        Watchers that have not been sent all changes begin anew: some may be of these hosts.
        """
        if self.nodes.denied.would_change(patterns):
            self.history.forget()
            await self.nodes.deny(patterns, self.slices)
            self.history.follow(self.nodes.denied.digest)


def build_components(
    context: RegistryContext,
    *,
    target_options: TargetOptions,
    store_url: str,
    history_bytes: int = MAX_BYTES,
) -> RegistryComponents:
    """Build the rules on a store that is not loaded yet, and the subscribers of changes.

    `store_url` is what is shown of the store; it holds no secrets. `history_bytes` bounds the
    changes that are kept for watchers.
    """
    directory, events, clocks, log = context.directory, context.changes, context.clocks, context.log
    nodes, slices, warm_up = Nodes(context), TimeSlices(), WarmUp(context)
    queries = NodeQueries(context, nodes, slices)
    index = TargetIndex(directory=directory, target_options=target_options, slices=slices)
    scrapers = Scrapers(clocks=clocks)
    shared = as_shared(context.store)
    history = ChangeHistory(
        max_bytes=history_bytes, store_position=lambda: None if shared is None else shared.position
    )
    wakeups = Wakeups()
    refused, expected_file = RefusedHosts(context), ExpectedFile(context, nodes, slices)
    roll_calls = RollCalls(context, nodes, expected_file, warm_up, refused)
    RollCallMetrics(context.metrics, nodes, roll_calls)
    node_metrics = NodeMetrics(
        context.metrics, nodes=nodes, warm_up=warm_up, index=index, scrapers=scrapers
    )
    events.subscribe(history.record, FOLLOWED_KINDS)
    events.subscribe(lambda _change: wakeups.notify(), FOLLOWED_KINDS)
    events.subscribe(index.on_change, INDEXED_KINDS)
    events.subscribe(node_metrics.count)
    audit = AuditLog(log)
    events.subscribe(audit.record, AUDITED_KINDS)
    callbacks = Callbacks(
        Parts(
            batches=ChangeBatches(history),
            is_ready=partial(_knows_all, queries, warm_up),
            steady=clocks.steady,
            log=log,
        ),
        wall=clocks.wall,
        user_agent=f"rollcall-registry/{VERSION}",
    )
    CallbackMetrics(context.metrics, callbacks)
    return RegistryComponents(
        context=context,
        index=index,
        nodes=nodes,
        queries=queries,
        history=history,
        wakeups=wakeups,
        slices=slices,
        warm_up=warm_up,
        scrapers=scrapers,
        remembered=Remembered(
            refused,
            HeartbeatHistory(
                accepted=lambda: node_metrics.accepted,
                states=nodes.state_counts,
                wall=clocks.wall,
            ),
            roll_calls,
        ),
        expected_file=expected_file,
        facts=Facts(
            version=VERSION,
            store_url=store_url,
            is_store_shared=is_shared_store(store_url),
            stale_after=context.settings.freshness.stale_after,
            started_at=int(clocks.wall()),
        ),
        audit=audit,
        reachability=ReachabilityLog(lambda: nodes.health, log, lambda: nodes.unavailable_reason),
        callbacks=callbacks,
    )


def _knows_all(queries: NodeQueries, warm_up: WarmUp) -> bool:
    """Return whether all nodes can be read: who is told to do so must not get a part of them."""
    try:
        queries.require_available()
    except (NotLoaded, StoreUnavailable):
        return False
    return warm_up.reason is None


def build_application(
    registry: RegistryComponents,
    *,
    keyring: Keyring,
    request_metrics: RequestMetrics,
    open_metrics: bool,
    open_swagger: bool,
    pages: bool,
    max_connections: int,
    proxies: TrustedProxies = NO_PROXIES,
) -> web.Application:
    """Build the HTTP application over the rules."""
    nodes, queries, warm_up = registry.nodes, registry.queries, registry.warm_up
    metrics, log = registry.context.metrics, registry.context.log
    readers = Readers()
    answers = Answers(slices=registry.slices, readers=readers)
    streams = EventStreams(
        registry.wakeups, log, places=MAX_WATCHERS, max_connections=max_connections
    )
    watch = Watch(
        queries=queries,
        directory=registry.context.directory,
        history=registry.history,
        warm_up=warm_up,
        streams=streams,
    )
    register_reader_metrics(metrics, readers=readers, watch=watch)
    targets = TargetsApi(
        warm_up=warm_up,
        queries=queries,
        answers=answers,
        index=registry.index,
        scrapers=registry.scrapers,
    )
    status = StatusApi(
        nodes=nodes,
        warm_up=warm_up,
        remembered=registry.remembered,
        facts=registry.facts,
        wall=registry.context.clocks.wall,
    )
    app = build_app(
        daemon="registry",
        routes=[
            *NodesApi(
                nodes=nodes,
                queries=queries,
                answers=answers,
                watch=watch,
            ).routes(),
            *targets.routes(),
            *RollCallApi(
                calls=registry.remembered.roll_calls,
                queries=queries,
                answers=answers,
                slices=registry.slices,
            ).routes(),
            *status.routes(),
            *access_routes("registry", version=VERSION, hostname=None),
        ],
        keyring=keyring,
        permits=partial(permits, nodes.denied),
        body_limits=BODY_LIMITS,
        status_by_error=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        unavailable_reason=lambda: nodes.unhealthy_reason,
        health=partial(_health, nodes, warm_up),
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        pages=Pages("registry") if pages else None,
        proxies=proxies,
        log=log,
    )
    app.cleanup_ctx.append(streams.run)
    app.on_shutdown.append(streams.close)
    app.on_response_prepare.append(StateHeaders(nodes, warm_up).__call__)
    app.on_response_prepare.append(RefusalRecorder(registry.remembered.refused, nodes).__call__)
    return app


def _health(nodes: Nodes, warm_up: WarmUp) -> dict[str, str]:
    """Return the body of a GET /healthz while reads are possible."""
    state, reason = nodes.store_state
    if state == "full":
        message = f"store: full, so changes are rejected; reads go on: {reason}"
        return {"message": message, "store": state}
    return {"message": warm_up.reason or "ok"}
