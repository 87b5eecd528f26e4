"""The disks of a daemon, as /metrics shows them."""

import asyncio
import os
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry
from structlog import get_logger

from dev.waiting import until
from httpd.disks import Disk, DiskMetrics, measuring_disks

NAMES = ("size_bytes", "free_bytes", "inodes", "free_inodes")
STATE, APPS, ENGINE, BTRFS = Path("/state"), Path("/state/apps"), Path("/engine"), Path("/btrfs")
# In the order of statvfs: block size, fragment size, blocks, free, available; the same of inodes.
EXT4 = (4096, 1024, 1000, 400, 300, 50, 20, 10, 0, 255)
DISKS = {
    STATE: (1, EXT4),
    APPS: (1, EXT4),
    BTRFS: (2, (4096, 4096, 10, 5, 5, 0, 0, 0, 0, 255)),
}


def disk(folder: Path) -> Disk:
    """Return what is known of a disk, or reject as the system does."""
    if folder not in DISKS:
        raise FileNotFoundError(folder)
    device, figures = DISKS[folder]
    return Disk(device, os.statvfs_result(figures))


def sample(disks: DiskMetrics) -> None:
    """Sample, and wait until each folder is."""
    for thread in disks.sample():
        thread.join()


def registered(disks: DiskMetrics) -> CollectorRegistry:
    """Return metrics of these disks alone."""
    collected = CollectorRegistry()
    collected.register(disks)
    return collected


def folders_in(metrics: CollectorRegistry) -> list[str]:
    """Return the folders that have a series."""
    (family,) = [each for each in metrics.collect() if each.name == "rollcall_disk_size_bytes"]
    return [sample.labels["folder"] for sample in family.samples]


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        (STATE, (1_024_000, 307_200, 50, 10)),
        (BTRFS, (40_960, 20_480, None, None)),
        (ENGINE, (None, None, None, None)),
    ],
)
def test_a_disk_has_its_size_and_what_is_free(
    folder: Path, values: tuple[float | None, ...]
) -> None:
    disks = DiskMetrics(lambda: [STATE, ENGINE, BTRFS], disk=disk)
    sample(disks)
    metrics, labels = registered(disks), {"folder": str(folder)}

    shown = tuple(metrics.get_sample_value(f"rollcall_disk_{name}", labels) for name in NAMES)

    assert shown == values


def test_of_several_folders_on_one_disk_the_first_has_a_series() -> None:
    disks = DiskMetrics(lambda: [STATE, BTRFS, APPS, STATE], disk=disk)
    sample(disks)

    assert folders_in(registered(disks)) == [str(STATE), str(BTRFS)]


def test_a_disk_that_hangs_is_left_out_once_its_sample_is_old_and_the_others_stay() -> None:
    now, hangs, goes_on, asked = [0.0], Event(), Event(), list[Path]()

    def hanging(folder: Path) -> Disk:
        asked.append(folder)
        if folder == STATE and hangs.is_set():
            assert goes_on.wait(60)
        return disk(folder)

    disks = DiskMetrics(lambda: [STATE, BTRFS], disk=hanging, monotonic=lambda: now[0])
    metrics = registered(disks)
    sample(disks)
    hangs.set()
    try:
        for second in (30.0, 60.0, 90.0):
            now[0] = second
            _, other = disks.sample()
            other.join()
            expected = [str(STATE), str(BTRFS)] if second <= 60 else [str(BTRFS)]
            assert folders_in(metrics) == expected
        assert asked.count(STATE) == 2
        assert asked.count(BTRFS) == 4
    finally:
        goes_on.set()
    sample(disks)
    sample(disks)
    assert folders_in(metrics) == [str(STATE), str(BTRFS)]


def test_a_folder_that_is_gone_is_left_out_at_once() -> None:
    here = [True]

    def fading(folder: Path) -> Disk:
        return disk(folder if here[0] else ENGINE)

    disks = DiskMetrics(lambda: [STATE], disk=fading)
    sample(disks)
    here[0] = False
    sample(disks)

    assert folders_in(registered(disks)) == []


async def test_disks_are_sampled_at_once_and_every_fifteen_seconds(tmp_path: Path) -> None:
    metrics, intervals, slept = CollectorRegistry(), list[float](), asyncio.Event()
    folders: list[Path] = []

    async def sleep(seconds: float) -> None:
        intervals.append(seconds)
        if len(intervals) < 2:
            folders.append(tmp_path)  # the engine has said where its folder is
            assert folders_in(metrics) == []
        else:
            slept.set()
            await asyncio.Event().wait()

    def shown() -> bool:
        return folders_in(metrics) == [str(tmp_path)]

    async with measuring_disks(metrics, lambda: folders, get_logger(), sleep=sleep):
        await slept.wait()
        await asyncio.to_thread(until, shown, "the disk is shown", within=60.0)

    assert intervals == [15.0, 15.0]
