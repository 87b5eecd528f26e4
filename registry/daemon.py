"""The composition root: build the registry from its settings, listen, load, run until a signal."""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from config.address import listen_address
from config.load import changed_settings, lines_in_mistakes, log_pending_restarts
from config.registry import RegistrySettings
from httpd.auth import Caller, Keyring
from httpd.disks import measuring_disks
from httpd.metrics import CertificateMetrics, RequestMetrics, measuring_loop, new_metrics
from httpd.process import SignalHandler, extending_start, map_large_blocks
from httpd.server.limits import Timeouts
from httpd.server.listener import serving
from httpd.server.tls import ServerTls
from httpd.systemd.service import SystemdNotifier, SystemdSockets
from httpd.write_ahead_log import watching_log
from registry.api.access import NodeKeys
from registry.api.app import build_application
from registry.api.lane import heartbeat_endpoint
from registry.callbacks.receiver import Callback
from registry.metrics import StoreMetrics
from registry.nodes.changes import NodeChanges
from registry.nodes.context import Clocks, Freshness, NodeRules, RegistryContext
from registry.nodes.directory import Directory
from registry.nodes.heartbeat_counts import STEP_SECONDS
from registry.prometheus.index import TargetIndex
from registry.registry import Registry
from registry.settings import RegistryConfiguration
from registry.store.clock import AgeClock
from registry.store.protocol import StoreBackend
from runtime.periodic import PeriodicTask

# An unchanged heartbeat is durable within this time. It may come right after a flush has begun,
# so that flushes are twice as frequent.
DURABLE_WITHIN_SECONDS = 1.0
FLUSH_SECONDS = DURABLE_WITHIN_SECONDS / 2
# The tasks ask for the age of nodes twice a second. Where they did not for so long, the process was
# stopped or the machine paused, or the loop was blocked: no host could report.
MAX_PAUSE_SECONDS = 3.0
# A request for targets reads the changed nodes itself. This bounds how many it finds unread.
INDEX_REFRESH_SECONDS = 2.0
SEARCH_REFRESH_SECONDS = 2.0
ROLL_CALL_SECONDS = 5.0
# A full collection takes 0.5, 0.9 and 1.9 ms of CPU time with 1000, 2000 and 5000 new nodes of two
# services each. While 100,000 nodes come, all collections before a freeze take 54, 44 and 38 ms.
# A freeze takes 10 us.
NODES_PER_FREEZE = 2000
# A change that waits for the store is some sixteen objects. With the thresholds of Python 3.11, 700
# and 10, a batch of sixty changes starts one or two collections, 3 % of all CPU time. With 5, the
# second generation has at most 30,000 objects, at which a collection looks for some milliseconds.
COLLECTOR_THRESHOLDS = 5000, 5, 10
SWITCH_SECONDS = 0.0005
DRAIN_SECONDS = 8.0
# Where systemd has kept the socket, nobody is to notice a restart. Elsewhere connections were
# rejected until now, and a quick 503 is no worse.
KEPT_QUIET_SECONDS = 3.0
QUIET_SECONDS = 0.1


async def run(
    configuration: RegistryConfiguration,
    log: FilteringBoundLogger,
    backend: StoreBackend | None = None,
) -> None:
    """Run the registry until SIGTERM or SIGINT, on the store of the settings or another one.

    Raises ConfigError, StoreOpenError and ListenError.
    """
    # The store's thread waits for the interpreter this long, many times in each batch, while the
    # loop computes: with the default of 5 ms, a heartbeat beside a long list took 0.3 s.
    sys.setswitchinterval(SWITCH_SECONDS)
    map_large_blocks()
    keyring = Keyring(configuration.callers, derived=configuration.node_keys())
    settings, metrics = configuration.settings, new_metrics()
    request_metrics, tls = RequestMetrics(metrics), configuration.tls()
    store = backend or configuration.store()
    _report(configuration, tls, metrics, log)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(measuring_loop(metrics, log))
        if (database := store.database) is not None:
            await stack.enter_async_context(
                measuring_disks(metrics, lambda: [database.parent], log)
            )
            await stack.enter_async_context(watching_log(metrics, database, log))
        registry = _open(stack, store, configuration, metrics, log)
        app = build_application(registry, settings, keyring, request_metrics)
        notifier = SystemdNotifier(os.environ)
        signals = SignalHandler(notifier=notifier, log=log)
        listener = await stack.enter_async_context(
            serving(
                app,
                tls=tls,
                metrics=request_metrics,
                max_connections=settings.max_connections,
                drain_seconds=DRAIN_SECONDS,
                log=log,
                systemd=SystemdSockets(environ=os.environ, notifier=notifier),
                timeouts=timeouts(stale_after_seconds=settings.nodes.stale_after_seconds),
                lane=heartbeat_endpoint(registry.nodes),
            )
        )
        await listener.listen(listen_address(settings.listen))
        refresher = stack.enter_context(IndexRefresher(registry.index, registry.context.directory))
        async with extending_start(notifier, log):
            await accept_when_loaded(
                registry.load,
                listener.accept,
                quiet_seconds=KEPT_QUIET_SECONDS if listener.has_kept_socket else QUIET_SECONDS,
            )
        log.info("loaded", nodes=len(registry.context.directory))
        if settings.shared_listen is not None:  # others answer there until now
            await listener.start(listen_address(settings.shared_listen), shared=True)
        if registry.warm_up.reason is not None:
            log.warning("targets withheld", reason=registry.warm_up.reason)
        # One task each: to read the services of a whole fleet takes longer than a flush may wait.
        for interval, action in (
            (FLUSH_SECONDS, registry.nodes.writes.flush),
            (FLUSH_SECONDS, registry.warm_up.finish),
            (FLUSH_SECONDS, registry.nodes.writes.delete_expired),
            (FLUSH_SECONDS, registry.queries.update_ages),
            (FLUSH_SECONDS, registry.reachability.look),
            (FLUSH_SECONDS, registry.expected_file.look),
            (ROLL_CALL_SECONDS, registry.call_roll),
            (INDEX_REFRESH_SECONDS, refresher.refresh),
            (SEARCH_REFRESH_SECONDS, registry.queries.prepare_search),
            (STEP_SECONDS, registry.heartbeats.sample),
        ):
            await stack.enter_async_context(PeriodicTask(interval=interval, action=action, log=log))
        await stack.enter_async_context(registry.callbacks.sending(configuration.callbacks()))
        await signals.run_until_stopped(partial(reload, configuration, keyring, registry))


async def accept_when_loaded(
    load: Callable[[], Coroutine[Any, Any, None]],
    accept: Callable[[], Awaitable[None]],
    *,
    quiet_seconds: float,
) -> None:
    """Load the store, and accept connections once it is loaded, or takes longer than that.

    Hosts whose heartbeat is due wait meanwhile; a slow store is rather reported by a 503. If
    loading has failed by then, they go on waiting, for the next start. Raises what `load` raises.
    """
    loading = asyncio.create_task(load())
    try:
        await asyncio.wait([loading], timeout=quiet_seconds)
        if loading.done():
            await loading
        await accept()
        await loading
    finally:  # the store is closed next
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


def _report(
    configuration: RegistryConfiguration,
    tls: ServerTls | None,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> None:
    """Log what is wrong with the settings now, and show when each certificate expires."""
    for reason in configuration.unsafe_settings():
        log.warning("unsafe setting", reason=reason)
    for fault in configuration.certificate_faults():
        log.warning("certificate not valid, peers reject it", reason=fault)
    # The certificates of `nats.tls` are read at the start alone.
    nats_expiries = configuration.nats_expiries()
    metrics.register(CertificateMetrics([lambda: nats_expiries, *([tls.expiries] if tls else [])]))


def timeouts(*, stale_after_seconds: float) -> Timeouts:
    """Return the time limits of connections: a host that is not stale keeps its connection."""
    return Timeouts(idle=max(Timeouts.idle, stale_after_seconds))


def _open(
    stack: AsyncExitStack,
    backend: StoreBackend,
    configuration: RegistryConfiguration,
    metrics: CollectorRegistry,
    log: FilteringBoundLogger,
) -> Registry:
    """Open the store and build the rules on it; the stack flushes and closes it at the end."""
    clock = AgeClock(time.monotonic, max_pause=MAX_PAUSE_SECONDS)
    store = backend.open(clock=clock, observe=StoreMetrics(metrics).observe)
    stack.push_async_callback(store.close)
    nodes = configuration.settings.nodes
    context = RegistryContext(
        store=store,
        directory=Directory(),
        changes=NodeChanges(log),
        settings=NodeRules(
            freshness=Freshness(
                stale_after=nodes.stale_after_seconds,
                expire_after=nodes.expire_after_seconds,
                expire_at_most_percent=nodes.expire_at_most_percent,
                started=clock(),
            ),
            max_mib=nodes.max_mib,
            changes_per_minute=nodes.changes_per_minute,
            denied=nodes.denied,
            expected=configuration.expected,
            warm_up=nodes.warm_up,
            store_url=configuration.settings.store,
        ),
        clocks=Clocks(wall=time.time, monotonic=clock, steady=time.monotonic),
        log=log,
        metrics=metrics,
    )
    registry = Registry(context, configuration.target_options())
    stack.callback(registry.audit.flush)
    stack.push_async_callback(registry.nodes.writes.flush)
    return registry


class IndexRefresher:
    """Reads the nodes that have changed into the index, and keeps the garbage collector from them.

    Of a hundred thousand nodes, each full collection would stop the loop for 50 to 80 ms. While
    this is open, the collector is off until the loaded nodes are in the index. Afterwards it does
    not look at what was there when some thousands of nodes had come. Garbage that is frozen stays
    for ever, so it is collected before each freeze. The first one has too much to look at.

    While this is open, the collector's thresholds are higher, so that some hundred changes that
    wait for the store start no collection.
    """

    def __init__(self, index: TargetIndex, directory: Directory) -> None:
        self._index = index
        self._directory = directory
        self._nodes_to_freeze = 0
        self._thresholds = gc.get_threshold()  # as they were before

    def __enter__(self) -> Self:
        gc.disable()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._thresholds)
        gc.enable()

    async def refresh(self) -> None:
        """Refresh the index, and freeze what is new if it is much."""
        await self._index.refresh()
        known = len(self._directory)
        if known >= self._nodes_to_freeze:
            if self._nodes_to_freeze:
                gc.collect()
            gc.freeze()
            gc.enable()
            self._nodes_to_freeze = known + NODES_PER_FREEZE
        # If many go, those that come after them are new again.
        self._nodes_to_freeze = min(self._nodes_to_freeze, known + NODES_PER_FREEZE)


async def reload(
    configuration: RegistryConfiguration, keyring: Keyring, registry: Registry
) -> None:
    """Read keys, callbacks, and denied and expected hosts again, and use them from now on.

    Other settings that differ are logged, because they need a restart. Raises ConfigError; the old
    ones stay then.
    """
    settings, callers, keys, callbacks = await asyncio.to_thread(_read_again, configuration.file)
    keyring.replace(callers, derived=keys)
    registry.callbacks.replace(callbacks)
    await registry.deny(settings.nodes.denied)
    await registry.expected_file.read()
    log_pending_restarts(
        changed_settings(
            configuration.settings,
            settings,
            except_for=("callbacks", "keys", "node_secret", "nodes.denied"),
        ),
        registry.context.log,
    )


def _read_again(
    file: Path,
) -> tuple[RegistrySettings, Sequence[tuple[bytes, Caller]], NodeKeys | None, Sequence[Callback]]:
    """Read the settings, and the files that they name, in a thread: many keys take long."""
    with lines_in_mistakes(file):
        fresh = RegistryConfiguration(file)
        callers = fresh.callers  # from then on the settings hold no key
        return fresh.settings, callers, fresh.node_keys(), fresh.callbacks()
