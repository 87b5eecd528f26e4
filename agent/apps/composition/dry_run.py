"""Builds the apps of one dry run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from agent.apps.admission.disk import DiskGuard, DiskSpace
from agent.apps.archives.access import DataAccess
from agent.apps.composition.health import HealthParts
from agent.apps.composition.operations import Kinds, build_operations
from agent.apps.defaults import AppDefaults
from agent.apps.dry_run.engine import DryEngine
from agent.apps.dry_run.parts import (
    DryHealthChecker,
    DryImages,
    DryPasswords,
    DryStarter,
    EndedPull,
    flush_nothing,
    free_nothing,
    silent_log,
)
from agent.apps.health.crashes import Crashes
from agent.apps.images.pulled import ImageUse, PulledImages
from agent.apps.ownership.ownership import Ownership
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.runner import OperationRunner
from agent.apps.service.apps import Apps
from agent.apps.service.hosted_apps import HostedAppsQuery
from agent.apps.service.queries import AppQueries, RecordBuilder
from agent.journal import JournalEntry


@dataclass(frozen=True, kw_only=True)
class DryApps:
    """Builds the apps of one dry run, in which nothing has to settle.

    ``readers`` are the names of the containers by which data is read at present.
    """

    ownership: Ownership
    health: HealthParts
    disk_guard: DiskGuard
    readers: set[str]
    hosted: HostedAppsQuery
    defaults: AppDefaults
    clock: Callable[[], float]

    def build(
        self, engine: DryEngine, repository: AppRepository, ended: JournalEntry | None
    ) -> Apps:
        """Return apps that change nothing but this repository, and ask this engine.

        ``ended`` is the entry of an operation whose pull the change ends, None if there is none.
        """
        log = silent_log()
        ownership = self.ownership.copied(engine, repository)
        health = replace(
            self.health,
            checker=DryHealthChecker(engine=engine, http=self.health.probe),
            findings=self.health.findings.copied(),
            runs=self.health.runs.copied(),
            # A change begins anew: earlier ends say nothing about the app as it would be.
            crashes=Crashes(on_loop=lambda: None, clock=self.clock),
        )
        parts = build_operations(
            engine=engine,
            repository=repository,
            ownership=ownership,
            health=health,
            images=DryImages(
                engine=engine,
                pulled=PulledImages(engine=engine, repository=repository, clock=self.clock),
                use=ImageUse(),
                log=log,
            ),
            disk=DiskSpace(guard=self.disk_guard, free=free_nothing, flush=flush_nothing),
            defaults=replace(self.defaults, settle_seconds=0),
            clock=self.clock,
            log=log,
            kinds=Kinds(
                passwords=DryPasswords,
                starter=partial(DryStarter, publish=engine.publish),
                data=partial(DataAccess, in_use=self.readers),
            ),
        )
        recover = dict(parts.operations.recover())
        if ended is not None:
            recover[type(ended)] = EndedPull(repository).recover
        runner = OperationRunner(repository=repository, recover=recover, clock=self.clock, log=log)
        return Apps(
            repository=repository,
            runner=runner,
            operations=parts.operations,
            queries=AppQueries(
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
            ),
            hosted=self.hosted,
        )
