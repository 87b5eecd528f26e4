"""Opens the apps, and runs their background tasks while they are open."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.disk import flush_disks
from agent.apps.context import AgentContext
from agent.apps.counters import AppCounters
from agent.apps.defaults import AppDefaults
from agent.apps.health import AppHealth, Findings, HealthChecker
from agent.apps.host import Host, make_host
from agent.apps.images.unneeded import ImageCollector
from agent.apps.operations.kinds import OPERATIONS
from agent.apps.ownership.claims import LOOK_SECONDS
from agent.apps.ownership.ownership import Ownership
from agent.apps.repository.repository import AppRepository
from agent.apps.run_history import Crashes, Runs
from agent.apps.runner.runner import OperationRunner
from agent.apps.service.apps import Apps
from agent.apps.service.hosted_apps import HostedAppsQuery
from agent.apps.service.queries import AppQueries
from agent.apps.upkeep.engine_events import EngineEvents
from agent.apps.upkeep.inspector import Inspector
from agent.apps.upkeep.keeper import Keeper
from agent.apps.upkeep.monitor import HealthMonitor
from agent.apps.upkeep.reconciler import Reconciler
from agent.apps.upkeep.serving import Serving
from agent.apps.upkeep.watcher import EngineWatcher
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from agent.state.database import AgentDatabase
from agent.state.identity import Identity
from runtime.periodic import PeriodicTask

FIRST_LOOK_SECONDS = 5.0
NETWORK_CHECK_SECONDS = 60.0


@asynccontextmanager
async def open_apps(
    *,
    store: AgentDatabase,
    engine: Engine,
    identity: Identity,
    defaults: AppDefaults,
    log: FilteringBoundLogger,
    on_change: Callable[[], None],
    clock: Callable[[], float],
    metrics: CollectorRegistry,
    flush: Callable[[], Awaitable[None]] = flush_disks,
    drain_seconds: float = 30.0,
    holders: Callable[[str], str] = lambda _: "",
) -> AsyncIterator[Apps]:
    """Open the database and watch the engine, which need not be there, while the context is open.

    At the end, wait for operations ``drain_seconds`` at most; those that are interrupted are
    recovered at the next start. The store and the engine are closed.

    ``on_change`` is called after each change of the apps, their labels or their states, those made
    by others included, and when the engine goes or comes. ``clock`` returns Unix time. The metrics
    of apps go to ``metrics``. ``flush`` waits until all that was written on this host is on its
    disks. ``holders`` returns the keys that an app belongs to, which share checks,
    restarts and the room for apps.

    Raises:
        StoreUnusable: the database cannot be used, and was left as it is.

    """
    repository = AppRepository(store, clock=clock, holders=holders)
    stored = await store.open()
    repository.load(stored)
    context = make_context(
        engine=engine,
        repository=repository,
        identity=identity,
        defaults=defaults,
        log=log,
        on_change=on_change,
        clock=clock,
        metrics=metrics,
        holders=holders,
    )
    crashes, runs = context.health.crashes, context.health.runs
    crashes.add(stored.latest_events)
    runs.load(stored.run_events)
    store.listeners += [crashes.add, runs.add]
    host = make_host(context, flush)
    async with running(host, drain_seconds=drain_seconds) as apps:
        yield apps


def make_context(
    *,
    engine: Engine,
    repository: AppRepository,
    identity: Identity,
    defaults: AppDefaults,
    log: FilteringBoundLogger,
    on_change: Callable[[], None],
    clock: Callable[[], float],
    metrics: CollectorRegistry,
    holders: Callable[[str], str] = lambda _: "",
) -> AgentContext:
    """Return what the parts share; the arguments are those of ``open_apps``."""
    return AgentContext(
        engine=engine,
        repository=repository,
        ownership=Ownership(engine, repository, identity, log),
        defaults=defaults,
        health=AppHealth(
            checker=HealthChecker(engine, holders),
            findings=Findings(),
            crashes=Crashes(on_loop=on_change, clock=clock),
            runs=Runs(),
        ),
        counters=AppCounters(metrics),
        log=log,
        clock=clock,
        on_change=on_change,
    )


@asynccontextmanager
async def running(host: Host, *, drain_seconds: float) -> AsyncIterator[Apps]:
    """Run the background tasks of the apps while the context is open."""
    context, collector = (
        host.context,
        ImageCollector(host.context, host.images.pulled, host.images.unneeded),
    )
    runner = OperationRunner(host, OPERATIONS)
    monitor, inspector, serving = HealthMonitor(context), Inspector(context), Serving(context)
    engine_events = EngineEvents(host)
    observers = [inspector, engine_events, monitor, Keeper(host, runner, inspector), serving]
    watcher = EngineWatcher(context, Reconciler(host, runner, observers))
    runner.listeners += [watcher.operation_ended, context.on_change, collector.operation_ended]
    monitor.listeners += [watcher.look_again, context.on_change]
    inspector.listeners += [watcher.look_again, context.on_change]
    context.ownership.adopted.append(watcher.look_again)
    queries = AppQueries(host, runner)
    hosted = HostedAppsQuery(context, queries.containers, watcher.state, serving)
    async with AsyncExitStack() as stack:
        for close in (
            *(context.repository.store.close, context.engine.close, host.images.close),
            *(hosted.close, context.health.checker.http.close, monitor.close, serving.close),
            *(engine_events.close, inspector.close, watcher.close, collector.close),
        ):
            stack.push_async_callback(close)
        await watcher.open(FIRST_LOOK_SECONDS)
        collector.open()
        for action, interval in (
            (context.ownership.guard, LOOK_SECONDS),
            (host.containers.network.check, NETWORK_CHECK_SECONDS),
        ):
            # The watcher logs that the engine cannot be asked.
            task = PeriodicTask(
                interval=interval, action=action, log=context.log, ignored=(EngineError,)
            )
            await stack.enter_async_context(task)
        stack.push_async_callback(runner.close, drain_seconds)
        yield Apps(host, runner, queries, hosted)
