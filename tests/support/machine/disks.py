"""Small disks of a test's own: a file with a file system in it, and memory."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# EXT4_IOC_SHUTDOWN, and what it is to do: not even the journal is written any more.
SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, 2
# FIFREEZE and FITHAW: whoever writes to the file system waits meanwhile.
FREEZE, THAW = 0xC0045877, 0xC0045878


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it while the context is open."""
        self.mount_point.mkdir()
        self._mount()
        try:
            yield self.mount_point
        finally:
            self._unmount()

    def cut_power(self) -> None:
        """Write nothing to the disk any more, as if its power had failed; all else fails, too."""
        self._control(SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))

    def restore_power(self) -> None:
        """Mount it again, with what was synced; nothing has a file open on it."""
        self._unmount()
        is_in_use = self._is_in_use()
        self._mount()
        assert not is_in_use, f"a copy of these mounts has {self.image} still"

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let each write wait while the context is open."""
        self._control(FREEZE)
        try:
            yield
        finally:
            self._control(THAW)

    def _control(self, command: int, argument: bytes = bytes(4)) -> None:
        folder = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, command, argument)
        finally:
            os.close(folder)

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.mount_point], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", self.mount_point], check=True)

    def _is_in_use(self) -> bool:
        command = ["losetup", "--associated", str(self.image)]
        return bool(subprocess.run(command, check=True, capture_output=True).stdout)

    def after_power_cut(self) -> "Disk":
        """Return the disk as it would be found, had the power failed now.

        What was written but not synced is in the file system's cache, not yet in the file.
        """
        copy = self.image.with_name("copy.img")
        shutil.copyfile(self.image, copy)
        return Disk(copy, self.mount_point.with_name("after"))


def new_disk(folder: Path, *, mebibytes: int = 64, mount_point: Path | None = None) -> Disk:
    """Make a file system, in a file in a folder; it is mounted there, too, or where it is said."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(mebibytes * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    return Disk(image, mount_point or folder / "disk")


@contextmanager
def memory_disk(mount_point: Path, *, size: str) -> Iterator[Path]:
    """Mount a disk in memory, of a size such as 4m."""
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount_point], check=True)
    try:
        yield mount_point
    finally:
        # What is mounted on it may still be in a copy of these mounts (an isolated command's).
        subprocess.run(["umount", "--lazy", mount_point], check=True)


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


def free_disk(filler: Path) -> None:
    """Remove the file that takes all space; it does not come back after a power cut."""
    filler.unlink()
    sync_folder(filler.parent)


def sync_folder(path: Path) -> None:
    """Let what was removed from a folder, and from those in it, stay removed after a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
