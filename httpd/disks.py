"""How full the disks are that a daemon writes to."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from runtime.periodic import PeriodicTask

INTERVAL_SECONDS = 15.0
MAX_AGE_SECONDS = 60.0


class Disk(NamedTuple):
    """The device number of a disk, and its figures."""

    device: int
    figures: os.statvfs_result


def disk_of(folder: Path) -> Disk:
    """Return the disk of a folder. Raises OSError. A network file system may block for ever."""
    return Disk(folder.stat().st_dev, os.statvfs(folder))


class DiskMetrics(Collector):
    """Shows the disk of each folder that ``folders`` returns, as it was sampled last.

    A folder is left out if it is not here, if its sample is a minute old, or if a folder before it
    is on the same disk.
    """

    def __init__(
        self,
        folders: Callable[[], Iterable[Path]],
        *,
        disk: Callable[[Path], Disk] = disk_of,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = folders
        self._disk = disk
        self._monotonic = monotonic
        self._samples: dict[Path, tuple[float, Disk]] = {}
        self._threads: dict[Path, Thread] = {}

    def sample(self) -> list[Thread]:
        """Sample each folder in a thread of its own, unless its last one still runs; return all.

        The process does not wait for the threads at its end.
        """
        for folder in self._folders():
            thread = self._threads.get(folder)
            if thread is None or not thread.is_alive():
                thread = Thread(target=self._sample, args=(folder,), name="disk", daemon=True)
                with suppress(RuntimeError):  # no more threads now; the next round tries again
                    thread.start()
                    self._threads[folder] = thread
        return list(self._threads.values())

    def _sample(self, folder: Path) -> None:
        try:
            self._samples[folder] = self._monotonic(), self._disk(folder)
        except OSError:
            self._samples.pop(folder, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, with a series for each disk."""
        size = _gauge("size_bytes", "Size of the disk of a folder")
        free = _gauge("free_bytes", "What users other than root may still write to it")
        inodes = _gauge("inodes", "Inodes of the disk of a folder, if it has a fixed number")
        free_inodes = _gauge("free_inodes", "Inodes that users other than root may still use")
        for folder, disk in self._disks():
            size.add_metric([str(folder)], disk.f_blocks * disk.f_frsize)
            free.add_metric([str(folder)], disk.f_bavail * disk.f_frsize)
            if disk.f_files:
                inodes.add_metric([str(folder)], disk.f_files)
                free_inodes.add_metric([str(folder)], disk.f_favail)
        yield from (size, free, inodes, free_inodes)

    def _disks(self) -> Iterator[tuple[Path, os.statvfs_result]]:
        """Yield what is shown: the first folder of each device, if its sample is fresh."""
        devices: set[int] = set()
        oldest = self._monotonic() - MAX_AGE_SECONDS
        for folder in self._folders():
            at, disk = self._samples.get(folder, (float("-inf"), None))
            if disk is not None and at >= oldest and disk.device not in devices:
                devices.add(disk.device)
                yield folder, disk.figures


def measuring_disks(
    metrics: CollectorRegistry,
    folders: Callable[[], Iterable[Path]],
    log: FilteringBoundLogger,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> PeriodicTask:
    """Return what samples the disks of folders while it is open, every 15 seconds."""
    disks = DiskMetrics(folders)
    metrics.register(disks)

    async def sample() -> None:
        disks.sample()

    return PeriodicTask(interval=INTERVAL_SECONDS, action=sample, log=log, sleep=sleep)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rollcall_disk_{name}", text, labels=["folder"])
