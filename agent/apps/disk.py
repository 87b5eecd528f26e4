"""Room on the disks of the engine and of the agent, which many things fail without."""

import os
from collections.abc import Callable
from pathlib import Path

from agent.engine.protocol import DiskFull

Statvfs = Callable[[str], os.statvfs_result]


class DiskGuard:
    """Refuses what adds data while a disk is nearly full; all else goes on.

    ``database_directory`` is where the agent keeps its database.
    """

    def __init__(
        self, *, min_free_percent: int, database_directory: Path, statvfs: Statvfs = os.statvfs
    ) -> None:
        self._min_free_percent = min_free_percent
        self._database_directory = str(database_directory)
        self._statvfs = statvfs

    def check(self, root: str) -> None:
        """Refuse when too few bytes or inodes are free under ``root`` or on our own disk; DiskFull.

        Nothing is refused where it cannot be measured: the engine's files may be elsewhere.
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
