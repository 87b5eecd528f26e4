"""Wiring: open the store, build the rules, listen, read the nodes, and live until told to stop."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from config.address import listen_address
from httpd.auth import Keyring
from httpd.metrics import RequestMetrics, new_metrics
from httpd.process import SignalHandler, SystemdNotifier
from httpd.server.limits import Timeouts
from httpd.server.listener import listening
from registry.api.lane import HeartbeatEndpoint
from registry.composition import RegistryComponents, build_application, build_components
from registry.metrics import StoreMetrics
from registry.nodes.audit import AuditLog
from registry.nodes.freshness import Freshness
from registry.prometheus.index import TargetIndex
from registry.settings import RegistryConfiguration
from registry.store.sqlite.store import SqliteStore

# What is promised to be durable within a second is written twice in one.
FLUSH_SECONDS = 0.5
# Who asks for targets has changed nodes read at once; else they are read now and then, together.
INDEX_REFRESH_SECONDS = 2.0
DRAIN_SECONDS = 8.0


async def run(
    configuration: RegistryConfiguration,
    log: FilteringBoundLogger,
    store: type[SqliteStore] = SqliteStore,
) -> None:
    """Run the registry, on a store of this kind, until SIGTERM or SIGINT.

    Raises ConfigError, StartError of the store and of the shell.
    """
    keyring = Keyring(configuration.callers, derived=configuration.derived())
    settings, metrics = configuration.settings, new_metrics()
    request_metrics, tls = RequestMetrics(metrics), configuration.tls()
    async with AsyncExitStack() as stack:
        registry = _open(stack, store, configuration, metrics, log)
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
        # For a hundred thousand nodes each full collection is a stall of 50 to 80 ms. Of those that
        # come later it goes on to be one, until the next start.
        gc.freeze()
        log.info("loaded", nodes=len(registry.directory))
        # Each on its own: to read a whole fleet's services takes longer than a flush may wait.
        for interval, action in (
            (FLUSH_SECONDS, registry.nodes.flush),
            (INDEX_REFRESH_SECONDS, IndexRefresher(registry.index)),
        ):
            await stack.enter_async_context(PeriodicTask(interval=interval, action=action, log=log))
        await signals.run_until_stopped(KeyReloader(configuration.file, keyring))


def timeouts(*, stale_after_seconds: float) -> Timeouts:
    """Give the connections' limits: a host that is not stale yet keeps the one that it has."""
    return Timeouts(idle=max(Timeouts.idle, stale_after_seconds))


def _open(
    stack: AsyncExitStack,
    kind: type[SqliteStore],
    configuration: RegistryConfiguration,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> RegistryComponents:
    """Open the store, and build the rules on it; what is heard last is made durable at the end."""
    store = kind(
        path=configuration.store_file(),
        monotonic=time.monotonic,
        observe=StoreMetrics(metrics).observe,
    )
    stack.push_async_callback(store.close)
    registry = build_components(
        store=store,
        target_options=configuration.target_options(),
        freshness=_freshness(configuration),
        clock=time.time,
        monotonic=time.monotonic,
        audit=AuditLog(log).record,
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
    """Reads nodes that changed; the first time, as a rule, the whole fleet that was loaded."""

    def __init__(self, index: TargetIndex) -> None:
        self._index = index
        self._frozen = False

    async def __call__(self) -> None:
        """Read them; what the first time makes is for the collector to leave alone, too."""
        await self._index.refresh()
        if not self._frozen:
            self._frozen = True
            gc.freeze()


class PeriodicTask:
    """While it is open, does something every so many seconds."""

    def __init__(
        self, *, interval: float, action: Callable[[], Awaitable[None]], log: FilteringBoundLogger
    ) -> None:
        self._interval = interval
        self._action = action
        self._log = log

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
            await asyncio.sleep(self._interval)


class KeyReloader:
    """Reads the keys again. Raises ConfigError; then the old ones stay."""

    def __init__(self, file: Path, keyring: Keyring) -> None:
        self._file = file
        self._keyring = keyring

    def __call__(self) -> None:
        """Take over what the settings file and the key files say now."""
        fresh = RegistryConfiguration(self._file)
        self._keyring.replace(fresh.callers, derived=fresh.derived())
