"""The composition root: build the registry from its settings, listen, load, run until a signal."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from config.address import listen_address
from httpd.app import build_app
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics, new_metrics
from httpd.process import SignalHandler, SystemdNotifier
from httpd.server.limits import Timeouts
from httpd.server.listener import listening
from registry.api.access import permits
from registry.api.lane import HeartbeatEndpoint
from registry.api.nodes import BODY_LIMITS, NodesApi
from registry.api.targets import TargetsApi
from registry.errors import STATUS_BY_ERROR
from registry.metrics import NodeMetrics, StoreMetrics
from registry.nodes.audit import AUDITED, AuditLog
from registry.nodes.directory import Directory
from registry.nodes.events import NodeEvents
from registry.nodes.freshness import Clocks, Freshness
from registry.nodes.nodes import Nodes
from registry.prometheus.index import TargetIndex
from registry.prometheus.scrapers import Scrapers
from registry.prometheus.targets import TargetOptions
from registry.settings import RegistryConfiguration
from registry.store.protocol import NodeStore, StoreBackend

# An unchanged heartbeat is durable within this time. It may come right after a flush has begun,
# so that flushes are twice as frequent.
DURABLE_WITHIN_SECONDS = 1.0
FLUSH_SECONDS = DURABLE_WITHIN_SECONDS / 2
# A request for targets reads the changed nodes itself. This bounds how many it finds unread.
INDEX_REFRESH_SECONDS = 2.0
DRAIN_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryComponents:
    """What is behind the routes."""

    directory: Directory
    events: NodeEvents
    index: TargetIndex
    nodes: Nodes
    target_options: TargetOptions
    scrapers: Scrapers


def build_components(
    *,
    store: NodeStore,
    target_options: TargetOptions,
    freshness: Freshness,
    clocks: Clocks,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> RegistryComponents:
    """Build the rules on a store that is not loaded yet, and whatever subscribes to changes."""
    directory, events = Directory(), NodeEvents(log)
    nodes = Nodes(
        store=store, directory=directory, events=events, freshness=freshness, clocks=clocks
    )
    index = TargetIndex(directory=directory, target_options=target_options)
    scrapers = Scrapers(monotonic=clocks.monotonic)
    events.subscribe(index.on_change)
    events.subscribe(NodeMetrics(metrics, nodes=nodes, index=index, scrapers=scrapers).count)
    events.subscribe(AuditLog(log).record, AUDITED)
    return RegistryComponents(
        directory=directory,
        events=events,
        index=index,
        nodes=nodes,
        target_options=target_options,
        scrapers=scrapers,
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
    nodes = registry.nodes
    targets = TargetsApi(
        nodes=nodes,
        index=registry.index,
        target_options=registry.target_options,
        scrapers=registry.scrapers,
    )
    return build_app(
        routes=[*NodesApi(nodes=nodes).routes(), *targets.routes()],
        keyring=keyring,
        permits=permits,
        body_limits=BODY_LIMITS,
        statuses=STATUS_BY_ERROR,
        metrics=metrics,
        request_metrics=request_metrics,
        swagger=files("registry").joinpath("swagger.yml").read_text("utf-8"),
        unavailable_reason=lambda: nodes.unavailable_reason,
        open_metrics=open_metrics,
        open_swagger=open_swagger,
        log=log,
    )


async def run(
    configuration: RegistryConfiguration,
    log: FilteringBoundLogger,
    backend: StoreBackend | None = None,
) -> None:
    """Run the registry until SIGTERM or SIGINT, on the store of the settings or another one.

    Raises ConfigError, StoreOpenError and ListenError.
    """
    keyring = Keyring(configuration.callers, derived=configuration.derived())
    settings, metrics = configuration.settings, new_metrics()
    request_metrics, tls = RequestMetrics(metrics), configuration.tls()
    async with AsyncExitStack() as stack:
        registry = _open(stack, backend or configuration.store(), configuration, metrics, log)
        app = build_application(
            registry,
            keyring=keyring,
            metrics=metrics,
            request_metrics=request_metrics,
            open_metrics=settings.open_metrics,
            open_swagger=settings.open_swagger,
            log=log,
        )
        signals = SignalHandler(notifier=SystemdNotifier(os.environ), log=log)
        await stack.enter_async_context(
            listening(
                app,
                address=listen_address(settings.listen),
                tls=tls,
                metrics=request_metrics,
                max_connections=settings.max_connections,
                drain_seconds=DRAIN_SECONDS,
                log=log,
                timeouts=timeouts(stale_after_seconds=settings.nodes.stale_after_seconds),
                lane=HeartbeatEndpoint(registry.nodes),
            )
        )
        await registry.nodes.load()
        # The garbage collector need not look at the loaded nodes again: of a hundred thousand
        # nodes, each full collection would stop the loop for 50 to 80 ms.
        gc.freeze()
        log.info("loaded", nodes=len(registry.directory))
        # One task each: to read the services of a whole fleet takes longer than a flush may wait.
        for interval, action in (
            (FLUSH_SECONDS, registry.nodes.flush),
            (INDEX_REFRESH_SECONDS, IndexRefresher(registry.index)),
        ):
            await stack.enter_async_context(PeriodicTask(interval=interval, action=action, log=log))
        await signals.run_until_stopped(KeyReloader(configuration.file, keyring))


def timeouts(*, stale_after_seconds: float) -> Timeouts:
    """Return the time limits of connections: a host that is not stale keeps its connection."""
    return Timeouts(idle=max(Timeouts.idle, stale_after_seconds))


def _open(
    stack: AsyncExitStack,
    backend: StoreBackend,
    configuration: RegistryConfiguration,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> RegistryComponents:
    """Open the store and build the rules on it; the stack flushes and closes it at the end."""
    store = backend.open(monotonic=time.monotonic, observe=StoreMetrics(metrics).observe)
    stack.push_async_callback(store.close)
    registry = build_components(
        store=store,
        target_options=configuration.target_options(),
        freshness=_freshness(configuration),
        clocks=Clocks(wall=time.time, monotonic=time.monotonic),
        metrics=metrics,
        log=log,
    )
    stack.push_async_callback(registry.nodes.flush)
    return registry


def _freshness(configuration: RegistryConfiguration) -> Freshness:
    nodes = configuration.settings.nodes
    return Freshness(
        stale_after=nodes.stale_after_seconds,
        expire_after=nodes.expire_after_seconds,
        started=time.monotonic(),
    )


class IndexRefresher:
    """Reads the nodes that have changed into the index; the first time, the whole fleet."""

    def __init__(self, index: TargetIndex) -> None:
        self._index = index
        self._frozen = False

    async def __call__(self) -> None:
        """Refresh the index; after the first time, keep the collector from what that made."""
        await self._index.refresh()
        if not self._frozen:
            self._frozen = True
            gc.freeze()


class PeriodicTask:
    """While open, calls `action`, waits for `interval` seconds, and so on.

    An exception of the action is logged as a defect; it is called again after the interval.
    """

    def __init__(
        self,
        *,
        interval: float,
        action: Callable[[], Awaitable[None]],
        log: FilteringBoundLogger,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = interval
        self._action = action
        self._log = log
        self._sleep = sleep

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self._action()
            except Exception as error:
                self._log.error("defect", exc_info=error)
            await self._sleep(self._interval)


class KeyReloader:
    """Reads the keys again when called. Raises ConfigError; the old keys stay valid then."""

    def __init__(self, file: Path, keyring: Keyring) -> None:
        self._file = file
        self._keyring = keyring

    def __call__(self) -> None:
        """Replace the keys by those that the settings file and the key files hold now."""
        fresh = RegistryConfiguration(self._file)
        self._keyring.replace(fresh.callers, derived=fresh.derived())
