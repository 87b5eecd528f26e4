"""Builds the parts that fetch images, and remove them to make room on the disk."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from agent.apps.admission.disk import DiskGuard, DiskSpace
from agent.apps.counters import AppCounters
from agent.apps.images.collector import ImageCollector, UnneededImages
from agent.apps.images.images import AppImages
from agent.apps.images.pulled import ImageUse, PulledImages
from agent.apps.images.remover import ImageRemover
from agent.apps.repository.repository import AppRepository
from agent.engine.protocol import Engine


@dataclass(frozen=True, kw_only=True)
class ImageParts:
    """The images, the collector of those that nobody needs, and the check of the disk."""

    images: AppImages
    collector: ImageCollector
    disk: DiskSpace


def build_images(
    *,
    engine: Engine,
    repository: AppRepository,
    counters: AppCounters,
    disk_guard: DiskGuard,
    flush: Callable[[], Awaitable[None]],
    clock: Callable[[], float],
    log: FilteringBoundLogger,
) -> ImageParts:
    """Return these parts."""
    use = ImageUse()
    pulled = PulledImages(engine=engine, repository=repository, clock=clock)
    unneeded = UnneededImages(
        engine=engine,
        repository=repository,
        remover=ImageRemover(
            engine=engine, repository=repository, use=use, counters=counters, log=log
        ),
        disk_guard=disk_guard,
    )
    return ImageParts(
        images=AppImages(
            engine=engine,
            pulled=pulled,
            use=use,
            log=log,
        ),
        collector=ImageCollector(unneeded=unneeded, pulled=pulled, log=log),
        disk=DiskSpace(guard=disk_guard, free=unneeded.free, flush=flush),
    )
