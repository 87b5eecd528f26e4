"""How full the disks are that a daemon writes to."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Statvfs = Callable[[Path], os.statvfs_result]


class DiskMetrics(Collector):
    """Shows the disk of each folder that ``folders`` returns; one that is not here is left out."""

    def __init__(
        self, folders: Callable[[], Iterable[Path]], *, statvfs: Statvfs = os.statvfs
    ) -> None:
        self._folders = folders
        self._statvfs = statvfs

    def collect(self) -> Iterator[Metric]:
        """Return the metrics, with a series for each folder."""
        size = _gauge("size_bytes", "Size of the disk of a folder")
        free = _gauge("free_bytes", "What users other than root may still write to it")
        inodes = _gauge("inodes", "Inodes of the disk of a folder, if it has a fixed number")
        free_inodes = _gauge("free_inodes", "Inodes that users other than root may still use")
        for folder in dict.fromkeys(self._folders()):
            try:
                disk = self._statvfs(folder)
            except OSError:
                continue
            size.add_metric([str(folder)], disk.f_blocks * disk.f_frsize)
            free.add_metric([str(folder)], disk.f_bavail * disk.f_frsize)
            if disk.f_files:
                inodes.add_metric([str(folder)], disk.f_files)
                free_inodes.add_metric([str(folder)], disk.f_favail)
        yield from (size, free, inodes, free_inodes)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rollcall_disk_{name}", text, labels=["folder"])
