"""Builds the parts of the recovery."""

from collections.abc import Sequence
from time import monotonic

from structlog.typing import FilteringBoundLogger

from agent.apps.admission.admission import Admission
from agent.apps.archives.access import DataAccess
from agent.apps.containers.manager import ContainerManager
from agent.apps.counters import AppCounters
from agent.apps.health.findings import Findings
from agent.apps.observer import ContainerObserver
from agent.apps.operations.restart import RestartOperation
from agent.apps.recovery.adoption import Adoption
from agent.apps.recovery.autostart import LONGEST_PAUSE_SECONDS, AutostartKeeper
from agent.apps.recovery.inspector import Inspector
from agent.apps.recovery.keeper import Keeper, StopFinder
from agent.apps.recovery.recovery import JournalRecovery, Reconciler, RetrySchedule, Sweeper
from agent.apps.recovery.restart_schedule import RestartSchedule
from agent.apps.recovery.restarter import HealthRestarter
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner


def build_keepers(
    *,
    repository: AppRepository,
    runner: OperationRunner,
    admission: Admission,
    containers: ContainerManager,
    counters: AppCounters,
    findings: Findings,
    stops: StopFinder,
    inspector: Inspector,
    log: FilteringBoundLogger,
) -> list[ContainerObserver]:
    """Return the observers that keep apps that should run up and healthy, and others down."""
    operation = RestartOperation(
        repository=repository,
        admission=admission,
        containers=containers,
        counters=counters,
        log=log,
    )
    return [
        Keeper(
            repository=repository,
            runner=runner,
            operation=operation,
            stops=stops,
            schedule=RestartSchedule(monotonic),
        ),
        HealthRestarter(
            repository=repository,
            runner=runner,
            operation=operation,
            findings=findings,
            schedule=RestartSchedule(monotonic),
        ),
        AutostartKeeper(
            repository=repository,
            runner=runner,
            operation=operation,
            inspector=inspector,
            schedule=RestartSchedule(monotonic, longest=LONGEST_PAUSE_SECONDS),
        ),
    ]


def build_reconciler(
    *,
    observers: Sequence[ContainerObserver],
    repository: AppRepository,
    runner: OperationRunner,
    containers: ContainerManager,
    data: DataAccess,
    adoption: Adoption,
    log: FilteringBoundLogger,
) -> Reconciler:
    """Return the reconciler, which calls these observers."""
    return Reconciler(
        containers=containers,
        journal=JournalRecovery(
            repository=repository,
            runner=runner,
            sweep_data=data.sweep,
            schedule=RetrySchedule(monotonic),
        ),
        sweeper=Sweeper(
            repository=repository,
            runner=runner,
            containers=containers,
            adoption=adoption,
            log=log,
        ),
        observers=observers,
    )
