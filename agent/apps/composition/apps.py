"""Builds the apps, and runs their background tasks while they are open."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.disk import DiskGuard, flush_disks
from agent.apps.composition.dry_run import DryApps
from agent.apps.composition.health import HealthParts, build_health
from agent.apps.composition.images import build_images
from agent.apps.composition.operations import build_operations
from agent.apps.composition.recovery import build_keepers, build_reconciler
from agent.apps.containers.network import AppsNetwork
from agent.apps.defaults import AppDefaults
from agent.apps.dry_run.dry_runs import DryRuns
from agent.apps.health.monitor import HealthMonitor
from agent.apps.ownership.claims import LOOK_SECONDS
from agent.apps.ownership.guard import ClaimGuard
from agent.apps.ownership.ownership import Ownership
from agent.apps.recovery.adoption import Adoption
from agent.apps.recovery.engine_events import EngineEvents
from agent.apps.recovery.inspector import Inspector
from agent.apps.recovery.keeper import StopFinder
from agent.apps.recovery.pending_passwords import PendingPasswords
from agent.apps.recovery.periodic import PeriodicTasks, PeriodicWork
from agent.apps.recovery.restart_schedule import RestartSchedule
from agent.apps.recovery.watcher import EngineWatcher
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.apps.service.apps import Apps
from agent.apps.service.hosted_apps import HostedAppBuilder, HostedAppsQuery
from agent.apps.service.queries import AppQueries, RecordBuilder
from agent.engine.protocol import Engine
from agent.state.identity import Identity
from agent.state.store import Store

FIRST_LOOK_SECONDS = 5.0
NETWORK_CHECK_SECONDS = 60.0


@asynccontextmanager
async def open_apps(
    *,
    store: Store,
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
    disks. ``holders`` returns the keys that an app belongs to, which share health checks.

    Raises:
        StoreUnusable: the database cannot be used, and was left as it is.

    """
    health = build_health(
        engine=engine, metrics=metrics, on_change=on_change, clock=clock, holders=holders
    )
    repository = await _repository(store, health, clock)
    ownership = Ownership(engine=engine, repository=repository, identity=identity, log=log)
    disk_guard = DiskGuard(
        min_free_percent=defaults.min_free_percent, database_directory=store.folder
    )
    images = build_images(
        engine=engine,
        repository=repository,
        counters=health.counters,
        disk_guard=disk_guard,
        flush=flush,
        clock=clock,
        log=log,
    )
    parts = build_operations(
        engine=engine,
        repository=repository,
        ownership=ownership,
        health=health,
        images=images.images,
        disk=images.disk,
        defaults=defaults,
        clock=clock,
        log=log,
    )
    runner = OperationRunner(
        repository=repository, recover=parts.operations.recover(), clock=clock, log=log
    )
    monitor = HealthMonitor(
        repository=repository,
        checker=health.checker,
        findings=health.findings,
        counters=health.counters,
        log=log,
    )
    inspector = Inspector(
        engine=engine, repository=repository, runs=health.runs, monotonic=monotonic
    )
    engine_events = EngineEvents(
        repository=repository, commands=parts.commands, runs=health.runs, log=log
    )
    reconciler = build_reconciler(
        observers=[
            inspector,
            engine_events,
            monitor,
            *build_keepers(
                repository=repository,
                runner=runner,
                admission=parts.admission,
                containers=parts.containers,
                counters=health.counters,
                findings=health.findings,
                stops=StopFinder(engine=engine, clock=clock),
                inspector=inspector,
                log=log,
            ),
            PendingPasswords(
                repository=repository,
                runner=runner,
                password=parts.operations.password,
                schedule=RestartSchedule(monotonic),
            ),
        ],
        repository=repository,
        runner=runner,
        containers=parts.containers,
        data=parts.data,
        adoption=Adoption(
            containers=parts.containers,
            repository=repository,
            passwords=parts.passwords,
            defaults=defaults,
            log=log,
        ),
        log=log,
    )
    watcher = EngineWatcher(
        engine=engine, reconciler=reconciler, on_change=on_change, clock=clock, log=log
    )
    runner.listeners += [watcher.operation_ended, on_change, images.collector.operation_ended]
    monitor.listeners += [watcher.look_again, on_change]
    inspector.listeners += [watcher.look_again, on_change]
    queries = AppQueries(
        engine=engine,
        repository=repository,
        ownership=ownership,
        records=RecordBuilder(
            operations=runner,
            findings=health.findings,
            crashes=health.crashes,
            runs=health.runs,
            network=parts.network,
        ),
    )
    apps = Apps(
        repository=repository,
        runner=runner,
        operations=parts.operations,
        queries=queries,
        hosted=HostedAppsQuery(
            apps=HostedAppBuilder(
                repository=repository, findings=health.findings, crashes=health.crashes
            ),
            containers=queries.containers,
            engine=watcher.state,
            on_change=on_change,
        ),
    )
    dry_apps = DryApps(
        ownership=ownership,
        health=health,
        disk_guard=disk_guard,
        readers=parts.data.in_use,
        hosted=apps.hosted,
        defaults=defaults,
        clock=clock,
    )
    apps.use_dry_runs(
        DryRuns(engine=engine, repository=repository, runner=runner, build=dry_apps.build)
    )
    periodic = _periodic(ownership, parts.network, watcher, log)
    await watcher.open(FIRST_LOOK_SECONDS)
    images.collector.open()
    periodic.open()
    try:
        yield apps
    finally:
        await runner.close(drain_seconds)
        await _close(
            *(images.collector.close, watcher.close, inspector.close, engine_events.close),
            *(monitor.close, health.probe.close, periodic.close, apps.hosted.close),
            *(images.images.close, engine.close, repository.store.close),
        )


async def _close(*parts: Callable[[], Awaitable[None]]) -> None:
    for close in parts:
        await close()


def _periodic(
    ownership: Ownership, network: AppsNetwork, watcher: EngineWatcher, log: FilteringBoundLogger
) -> PeriodicTasks:
    claim_guard = ClaimGuard(ownership=ownership, on_adopted=watcher.look_again, log=log)
    work: dict[PeriodicWork, float] = {
        claim_guard.look: LOOK_SECONDS,
        network.check: NETWORK_CHECK_SECONDS,
    }
    return PeriodicTasks(work, log)


async def _repository(
    store: Store, health: HealthParts, clock: Callable[[], float]
) -> AppRepository:
    repository, stored = AppRepository(store, clock=clock), await store.open()
    repository.load(stored)
    health.crashes.add(stored.latest_events)
    store.listeners.append(health.crashes.add)
    health.runs.load(stored.run_events)
    store.listeners.append(health.runs.add)
    return repository
