"""The disks of a daemon, as /metrics shows them."""

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from httpd.host_metrics.disks import DiskMetrics

NAMES = ("size_bytes", "free_bytes", "inodes", "free_inodes")
STATE, ENGINE, BTRFS = Path("/state"), Path("/engine"), Path("/btrfs")
# In the order of statvfs: block size, fragment size, blocks, free, available; the same of inodes.
DISKS = {
    STATE: (4096, 1024, 1000, 400, 300, 50, 20, 10, 0, 255),
    BTRFS: (4096, 4096, 10, 5, 5, 0, 0, 0, 0, 255),
}


def statvfs(folder: Path) -> os.statvfs_result:
    """Return what is known of a disk, or refuse as the system does."""
    if folder not in DISKS:
        raise FileNotFoundError(folder)
    return os.statvfs_result(DISKS[folder])


@pytest.fixture
def metrics() -> CollectorRegistry:
    """Return the metrics of some folders, one of which is named twice, and one on no disk here."""
    collected = CollectorRegistry()
    collected.register(DiskMetrics(lambda: [STATE, ENGINE, BTRFS, STATE], statvfs=statvfs))
    return collected


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        (STATE, (1_024_000, 307_200, 50, 10)),
        (BTRFS, (40_960, 20_480, None, None)),
        (ENGINE, (None, None, None, None)),
    ],
)
def test_a_disk_has_its_size_and_what_is_free(
    metrics: CollectorRegistry, folder: Path, values: tuple[float | None, ...]
) -> None:
    labels = {"folder": str(folder)}

    shown = tuple(metrics.get_sample_value(f"rollcall_disk_{name}", labels) for name in NAMES)

    assert shown == values


def test_a_folder_that_is_named_twice_has_one_series(metrics: CollectorRegistry) -> None:
    (family,) = [each for each in metrics.collect() if each.name == "rollcall_disk_size_bytes"]

    assert [sample.labels["folder"] for sample in family.samples] == [str(STATE), str(BTRFS)]
