"""Free space on the disks of the engine and of the agent."""

import os
from collections.abc import Callable
from pathlib import Path

from agent.engine.protocol import DiskFull

Statvfs = Callable[[str], os.statvfs_result]


class DiskGuard:
    """Refuses operations that add data while a disk is nearly full.

    ``database_directory`` holds the agent's database.
    """

    def __init__(
        self, *, min_free_percent: int, database_directory: Path, statvfs: Statvfs = os.statvfs
    ) -> None:
        self._min_free_percent = min_free_percent
        self._database_directory = str(database_directory)
        self._statvfs = statvfs

    def check(self, root: str) -> None:
        """Check the disk of the engine's ``root`` and that of the database.

        A disk that cannot be measured passes: the engine's may be on another host.

        Raises:
            DiskFull: too few bytes or inodes are free.

        """
        for path in (root, self._database_directory):
            self._check(path)

    def _check(self, path: str) -> None:
        try:
            disk = self._statvfs(path)
        except OSError:
            return
        for what, free, total in (
            ("space", disk.f_bavail, disk.f_blocks),
            ("inodes", disk.f_favail, disk.f_files),
        ):
            if total and free * 100 < self._min_free_percent * total:
                raise DiskFull(
                    f"only {free * 100 // total} % of the {what} under {path} is free, and new data"
                    f" needs {self._min_free_percent} %; stop, delete and logs still work"
                )
