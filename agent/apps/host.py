"""The parts by which operations act on this host."""

from dataclasses import dataclass

from agent.apps.admission.admission import Admission
from agent.apps.admission.disk import DiskGuard
from agent.apps.admission.ports import HostPorts, Ports, ephemeral_ports
from agent.apps.archives.access import DataAccess, Flush
from agent.apps.containers.containers import Containers
from agent.apps.containers.passwords import Passwords
from agent.apps.containers.volumes import Volumes
from agent.apps.context import AgentContext
from agent.apps.images.images import AppImages


@dataclass(frozen=True, kw_only=True)
class Host:
    """The parts by which operations act on this host."""

    context: AgentContext
    containers: Containers
    volumes: Volumes
    images: AppImages
    admission: Admission
    data: DataAccess
    passwords: Passwords


def make_host(context: AgentContext, flush: Flush) -> Host:
    """Make the parts; ``flush`` waits until all that was written is on the host's disks."""
    guard = DiskGuard(context.defaults.min_free_percent, context.repository.store.folder)
    images = AppImages(context, guard)
    bind = context.defaults.bind
    ports = Ports(context, HostPorts(bind=bind, ephemeral=ephemeral_ports()))
    volumes, passwords = Volumes(context), Passwords(context)
    return Host(
        context=context,
        containers=Containers(context, volumes, passwords, ports),
        volumes=volumes,
        images=images,
        admission=Admission(context, ports, guard),
        data=DataAccess(context, volumes, flush),
        passwords=passwords,
    )
