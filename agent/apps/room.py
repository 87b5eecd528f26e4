"""Room on the engine's disk, which many things fail without."""

import os
from collections.abc import Callable

from agent.containers import DiskFull

Statvfs = Callable[[str], os.statvfs_result]


class Room:
    """Refuses what adds data while the disk is nearly full; all else goes on."""

    def __init__(self, *, min_free_percent: int, statvfs: Statvfs = os.statvfs) -> None:
        self._min_free_percent = min_free_percent
        self._statvfs = statvfs

    def check(self, path: str) -> None:
        """Refuse when too few bytes or inodes are free where ``path`` lies; DiskFull.

        Nothing is refused where it cannot be measured: the engine's files may be elsewhere.
        """
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
