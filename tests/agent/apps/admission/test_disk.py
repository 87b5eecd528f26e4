"""How full a disk may be for new data."""

import os
from pathlib import Path

import pytest

from agent.apps.admission.disk import DiskGuard
from agent.engine.errors import DiskFull

OWN = Path("/state")


def disk(
    *, blocks: int = 1000, free: int = 500, files: int = 1000, free_files: int = 500
) -> object:
    return os.statvfs_result(
        (4096, 4096, blocks, free, free, files, free_files, free_files, 0, 255)
    )


def check(**disks: object) -> None:
    def statvfs(path: str) -> os.statvfs_result:
        found = disks.get(path.strip("/"), disk())
        assert isinstance(found, os.statvfs_result)
        return found

    DiskGuard(5, OWN, statvfs=statvfs).check("/engine")


def test_a_disk_with_room_is_fine_and_so_is_one_that_counts_no_inodes() -> None:
    check(engine=disk(free=50), state=disk(free_files=50))
    check(engine=disk(files=0, free_files=0), state=disk())


@pytest.mark.parametrize(
    ("place", "otherwise"),
    [
        ("engine", "stop, delete and logs"),
        ("run/docker", "stop, delete and logs"),
        ("state", "logs and all that only reads"),
    ],
)
@pytest.mark.parametrize(("full", "what"), [("free", "space"), ("free_files", "inodes")])
def test_too_little_space_or_too_few_inodes_on_any_disk_are_named(
    place: str, otherwise: str, full: str, what: str
) -> None:
    text = f"only 4 % of the {what} under /{place} is free.*; {otherwise} still work"
    with pytest.raises(DiskFull, match=text):
        check(**{place: disk(**{full: 49})})


def test_nothing_is_rejected_where_it_cannot_be_measured() -> None:
    def statvfs(path: str) -> os.statvfs_result:
        raise FileNotFoundError(path)

    DiskGuard(5, OWN, statvfs=statvfs).check("/engine")
