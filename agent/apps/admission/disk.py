"""Free space on the disks of the engine and of the agent."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from agent.engine.errors import DiskFull

# Docker's default, which the engine does not report: without room there, a stopped container
# cannot be started again.
EXEC_ROOT = "/run/docker"
Statvfs = Callable[[str], os.statvfs_result]


class DiskGuard:
    """Rejects operations that add data while a disk is nearly full.

    ``database_directory`` holds the agent's database.
    """

    def __init__(
        self, min_free_percent: int, database_directory: Path, *, statvfs: Statvfs = os.statvfs
    ) -> None:
        self._min_free_percent = min_free_percent
        self._database_directory = str(database_directory)
        self._statvfs = statvfs

    def check(self, root: str) -> None:
        """Check the disk of the engine's ``root``, that of running containers, and the database's.

        A disk that cannot be measured passes: the engine's may be on another host.

        Raises:
            DiskFull: too few bytes or inodes are free.

        """
        for path in (root, EXEC_ROOT):
            self._check(path, "stop, delete and logs still work")
        self._check(self._database_directory, "logs and all that only reads still work")

    def is_short(self, root: str) -> bool:
        """Return whether the disk of the engine's ``root`` has too few bytes or inodes."""
        try:
            self._check(root, "")
        except DiskFull:
            return True
        return False

    def _check(self, path: str, otherwise: str) -> None:
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
                    f" needs {self._min_free_percent} %; {otherwise}"
                )


async def flush_disks() -> None:
    """Wait until all that was written on this host is on its disks.

    Any user may ask the kernel for that, and the files may be those of another.
    """
    await asyncio.to_thread(os.sync)
