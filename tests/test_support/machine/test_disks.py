"""A full disk that has room again has it after a power cut, too."""

from pathlib import Path

import pytest

from tests.support.machine.disks import fill_disk, free_disk, memory_disk, new_disk, sync_folder
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("mkfs.ext4", "mount")


def test_room_outlives_a_power_cut(tmp_path: Path) -> None:
    need_root()
    with memory_disk(tmp_path / "memory", size="64m") as memory:
        disk = new_disk(memory, mebibytes=16)
        with disk.mounted() as folder:
            filler = fill_disk(folder)
            sync_folder(folder)

            free_disk(filler)
            disk.cut_power()
            disk.restore_power()

            assert [one.name for one in folder.iterdir()] == ["lost+found"]
            (folder / "file").write_bytes(bytes(1024 * 1024))
