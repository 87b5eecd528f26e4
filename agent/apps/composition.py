"""How the parts of the apps are put together."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from structlog.typing import FilteringBoundLogger

from agent.apps.admission import Admission
from agent.apps.containers.images import Images
from agent.apps.containers.manager import ContainerManager
from agent.apps.containers.starter import ContainerStarter
from agent.apps.containers.volumes import Volumes
from agent.apps.defaults import AppDefaults
from agent.apps.disk import DiskGuard
from agent.apps.operations import Operations
from agent.apps.operations.create import CreateOperation
from agent.apps.operations.labels import LabelsOperation
from agent.apps.operations.lifecycle import DeleteOperation, StartOperation, StopOperation
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.operations.runner import OperationRunner
from agent.apps.operations.update import UpdateOperation
from agent.apps.passwords import Passwords
from agent.apps.ports import HostPorts, Ports, ephemeral_ports
from agent.apps.queries import AppQueries, HostedAppsQuery
from agent.apps.recovery.adoption import Adoption
from agent.apps.recovery.outage import Restarter
from agent.apps.recovery.recovery import JournalRecovery, Reconciler, RetrySchedule, Sweeper
from agent.apps.recovery.watcher import EngineWatcher
from agent.apps.repository import AppRepository
from agent.apps.service import Apps
from agent.engine.protocol import Engine
from agent.state.store import Store

FIRST_LOOK_SECONDS = 5.0


@asynccontextmanager
async def open_apps(
    *,
    store: Store,
    engine: Engine,
    identity: str,
    defaults: AppDefaults,
    log: FilteringBoundLogger,
    on_change: Callable[[], None],
    clock: Callable[[], float],
    drain_seconds: float = 30.0,
) -> AsyncIterator[Apps]:
    """Open the database and watch the engine, which need not be there, while the context is open.

    At the end, wait for operations ``drain_seconds`` at most; those that are interrupted are
    recovered at the next start. The store and the engine are closed.

    ``identity`` is the agent's, which outlives its database. ``on_change`` is called after each
    change of the apps, their labels or their states, those made by others included, and when the
    engine goes or comes. ``clock`` returns Unix time.

    Raises:
        StoreUnusable: the database cannot be used, and was left as it is.

    """
    repository = AppRepository(store)
    repository.load(await store.open())
    volumes = Volumes(
        engine=engine, repository=repository, identity=identity, defaults=defaults, log=log
    )
    containers = ContainerManager(
        engine=engine, repository=repository, volumes=volumes, defaults=defaults, log=log
    )
    passwords = Passwords(engine=engine, default_user=defaults.ssh_user)
    images = Images(engine=engine, log=log)
    operations = _operations(
        engine=engine,
        repository=repository,
        images=images,
        volumes=volumes,
        containers=containers,
        passwords=passwords,
        disk_guard=DiskGuard(
            min_free_percent=defaults.min_free_percent, database_directory=store.folder
        ),
        defaults=defaults,
        log=log,
    )
    runner = OperationRunner(
        repository=repository, recover=operations.recover(), clock=clock, log=log
    )
    reconciler = _reconciler(
        repository=repository,
        runner=runner,
        operations=operations,
        containers=containers,
        adoption=Adoption(
            engine=engine, repository=repository, passwords=passwords, defaults=defaults, log=log
        ),
        log=log,
    )
    watcher = EngineWatcher(
        engine=engine, reconciler=reconciler, on_change=on_change, clock=clock, log=log
    )
    runner.subscribe(watcher.operation_ended)
    runner.subscribe(on_change)
    queries = AppQueries(engine=engine, repository=repository, operations=runner)
    hosted_apps = HostedAppsQuery(
        repository=repository,
        containers=queries.containers,
        engine=watcher,
        on_change=on_change,
    )
    await watcher.open(FIRST_LOOK_SECONDS)
    try:
        yield Apps(
            repository=repository,
            runner=runner,
            operations=operations,
            queries=queries,
            hosted_apps=hosted_apps,
        )
    finally:
        await runner.close(drain_seconds)
        await watcher.close()
        await hosted_apps.close()
        await images.close()
        await engine.close()
        await repository.close()


def _operations(
    *,
    engine: Engine,
    repository: AppRepository,
    images: Images,
    volumes: Volumes,
    containers: ContainerManager,
    passwords: Passwords,
    disk_guard: DiskGuard,
    defaults: AppDefaults,
    log: FilteringBoundLogger,
) -> Operations:
    ports = Ports(
        engine=engine,
        repository=repository,
        probe=HostPorts(bind=defaults.bind, ephemeral=ephemeral_ports()),
        pick_from=defaults.ports,
        log=log,
    )
    starter = ContainerStarter(
        engine=engine, passwords=passwords, ports=ports, settle_seconds=defaults.settle_seconds
    )
    admission = Admission(
        engine=engine, repository=repository, ports=ports, disk_guard=disk_guard, defaults=defaults
    )
    rebuild = RebuildOperation(
        repository=repository,
        admission=admission,
        images=images,
        containers=containers,
        starter=starter,
    )
    return Operations(
        create=CreateOperation(
            repository=repository,
            admission=admission,
            images=images,
            containers=containers,
            starter=starter,
        ),
        update=UpdateOperation(
            repository=repository,
            admission=admission,
            containers=containers,
            rebuild=rebuild,
            log=log,
        ),
        rebuild=rebuild,
        start=StartOperation(
            repository=repository, containers=containers, starter=starter, rebuild=rebuild
        ),
        stop=StopOperation(repository=repository, containers=containers),
        delete=DeleteOperation(repository=repository, containers=containers, volumes=volumes),
        labels=LabelsOperation(repository=repository, containers=containers),
        password=PasswordOperation(
            repository=repository,
            containers=containers,
            passwords=passwords,
            min_length=defaults.password_min,
        ),
    )


def _reconciler(
    *,
    repository: AppRepository,
    runner: OperationRunner,
    operations: Operations,
    containers: ContainerManager,
    adoption: Adoption,
    log: FilteringBoundLogger,
) -> Reconciler:
    return Reconciler(
        containers=containers,
        adoption=adoption,
        journal=JournalRecovery(
            repository=repository, runner=runner, schedule=RetrySchedule(monotonic)
        ),
        sweeper=Sweeper(
            repository=repository,
            runner=runner,
            containers=containers,
            adoption=adoption,
            log=log,
        ),
        restarter=Restarter(
            repository=repository,
            runner=runner,
            start=operations.start,
            password=operations.password,
            log=log,
        ),
    )
