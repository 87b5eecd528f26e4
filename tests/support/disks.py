"""Small disks of a test's own: a file with a file system in it, and memory."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it while the context is open."""
        self.mount_point.mkdir()
        subprocess.run(["mount", "-o", "loop", self.image, self.mount_point], check=True)
        try:
            yield self.mount_point
        finally:
            subprocess.run(["umount", self.mount_point], check=True)

    def after_power_cut(self) -> "Disk":
        """Return the disk as it would be found, had the power failed now.

        What was written but not synced is in the file system's cache, not yet in the file.
        """
        copy = self.image.with_name("copy.img")
        shutil.copyfile(self.image, copy)
        return Disk(copy, self.mount_point.with_name("after"))


def new_disk(folder: Path, *, mebibytes: int = 64) -> Disk:
    """Make a file system."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(mebibytes * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    return Disk(image, folder / "disk")


@contextmanager
def memory_disk(mount_point: Path, *, size: str) -> Iterator[Path]:
    """Mount a disk in memory, of a size such as 4m."""
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount_point], check=True)
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", mount_point], check=True)


def fill_disk(folder: Path) -> Path:
    """Leave no space on the disk of a folder; return the file that takes it."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 16, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError:
                continue
    return file
