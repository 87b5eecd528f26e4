"""Builds the operations: those that change apps, and those of a dry run."""

from collections.abc import Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from agent.apps.admission.admission import Admission
from agent.apps.admission.disk import DiskSpace
from agent.apps.admission.ports import HostPorts, Ports, ephemeral_ports
from agent.apps.archives.access import DataAccess
from agent.apps.composition.health import HealthParts
from agent.apps.containers.commands import ContainerCommands
from agent.apps.containers.manager import ContainerManager
from agent.apps.containers.network import AppsNetwork
from agent.apps.containers.passwords import Passwords
from agent.apps.containers.readiness import Readiness
from agent.apps.containers.spec import ContainerPlanner
from agent.apps.containers.starter import ContainerStarter
from agent.apps.containers.volumes import Volumes
from agent.apps.defaults import AppDefaults
from agent.apps.images.images import AppImages
from agent.apps.operations import Operations
from agent.apps.operations.create import CreateOperation
from agent.apps.operations.export import ExportOperation
from agent.apps.operations.labels import LabelsOperation
from agent.apps.operations.lifecycle import DeleteOperation, StartOperation, StopOperation
from agent.apps.operations.password import PasswordOperation
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.operations.restore import RestoreOperation
from agent.apps.operations.rollback import RollbackOperation
from agent.apps.operations.update import UpdateOperation
from agent.apps.ownership.ownership import Ownership
from agent.apps.repository.repository import AppRepository
from agent.engine.protocol import Engine


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """The constructors of the parts that a dry run replaces."""

    passwords: Callable[..., Passwords] = Passwords
    starter: Callable[..., ContainerStarter] = ContainerStarter
    data: Callable[..., DataAccess] = DataAccess


REAL_KINDS = Kinds()


@dataclass(frozen=True, kw_only=True)
class OperationParts:
    """The operations, and the parts that others use, too."""

    operations: Operations
    admission: Admission
    commands: ContainerCommands
    containers: ContainerManager
    network: AppsNetwork
    passwords: Passwords
    data: DataAccess


def build_operations(
    *,
    engine: Engine,
    repository: AppRepository,
    ownership: Ownership,
    health: HealthParts,
    images: AppImages,
    disk: DiskSpace,
    defaults: AppDefaults,
    clock: Callable[[], float],
    log: FilteringBoundLogger,
    kinds: Kinds = REAL_KINDS,
) -> OperationParts:
    """Return these parts."""
    volumes = Volumes(
        engine=engine, repository=repository, ownership=ownership, defaults=defaults, log=log
    )
    network = AppsNetwork(engine=engine, defaults=defaults, log=log)
    commands = ContainerCommands(engine=engine, clock=clock)
    containers = ContainerManager(
        commands=commands,
        ownership=ownership,
        volumes=volumes,
        planner=ContainerPlanner(
            engine=engine, ownership=ownership, network=network, defaults=defaults
        ),
        log=log,
    )
    passwords = kinds.passwords(engine=engine, default_user=defaults.ssh_user, log=log)
    data = kinds.data(engine=engine, ownership=ownership, volumes=volumes, flush=disk.flush)
    ports = Ports(
        engine=engine,
        repository=repository,
        probe=HostPorts(bind=defaults.bind, ephemeral=ephemeral_ports()),
        pick_from=defaults.ports,
        log=log,
    )
    starter = kinds.starter(
        commands=commands,
        passwords=passwords,
        ports=ports,
        readiness=Readiness(
            engine=engine,
            checker=health.checker,
            findings=health.findings,
            settle_seconds=defaults.settle_seconds,
            healthy_seconds=defaults.healthy_seconds,
        ),
    )
    admission = Admission(
        engine=engine, repository=repository, ports=ports, disk=disk, defaults=defaults
    )
    return OperationParts(
        operations=_operations(
            repository=repository,
            admission=admission,
            images=images,
            volumes=volumes,
            containers=containers,
            starter=starter,
            passwords=passwords,
            data=data,
            password_min=defaults.password_min,
            log=log,
        ),
        admission=admission,
        commands=commands,
        containers=containers,
        network=network,
        passwords=passwords,
        data=data,
    )


def _operations(
    *,
    repository: AppRepository,
    admission: Admission,
    images: AppImages,
    volumes: Volumes,
    containers: ContainerManager,
    starter: ContainerStarter,
    passwords: Passwords,
    data: DataAccess,
    password_min: int,
    log: FilteringBoundLogger,
) -> Operations:
    rebuild = RebuildOperation(
        repository=repository,
        admission=admission,
        images=images,
        containers=containers,
        starter=starter,
    )
    update = UpdateOperation(
        repository=repository,
        admission=admission,
        containers=containers,
        rebuild=rebuild,
        log=log,
    )
    return Operations(
        create=CreateOperation(
            repository=repository,
            admission=admission,
            images=images,
            containers=containers,
            starter=starter,
        ),
        update=update,
        rebuild=rebuild,
        rollback=RollbackOperation(
            repository=repository,
            admission=admission,
            images=images,
            containers=containers,
            update=update,
        ),
        start=StartOperation(
            repository=repository,
            admission=admission,
            containers=containers,
            starter=starter,
            rebuild=rebuild,
        ),
        stop=StopOperation(repository=repository, containers=containers),
        delete=DeleteOperation(
            repository=repository, containers=containers, volumes=volumes, data=data
        ),
        labels=LabelsOperation(repository=repository, containers=containers),
        password=PasswordOperation(
            repository=repository,
            containers=containers,
            passwords=passwords,
            min_length=password_min,
        ),
        export=ExportOperation(repository=repository, containers=containers, data=data),
        restore=RestoreOperation(
            repository=repository,
            admission=admission,
            containers=containers,
            data=data,
            rebuild=rebuild,
        ),
    )
