"""Copies that are killed as they write the application id of a file."""

import struct
from pathlib import Path

import pytest

from registry.errors import StoreOpenError
from registry.store.copying import copy
from registry.store.sqlite.backend import SqliteBackend
from registry.store.sqlite.database import APPLICATION_ID, MOVED_ID, UNFINISHED_ID, read_application
from tests.support.registry.stores.copies import Copy, CutOff
from tests.support.registry.stores.sqlite_store import fill, hostnames_of, open_store

MAGIC = bytes.fromhex("d9d505f920a163d7")
SECTOR_BYTES = 512
ID_OFFSET = 68


def write_unsettled(path: Path, application: int) -> None:
    """Write an application id into a file, with the journal that undoes it, as before its end."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    page = bytes(content[:size])
    header = MAGIC + struct.pack(">5I", 1, 0, len(content) // size, SECTOR_BYTES, size)
    checksum = sum(page[offset] for offset in range(size - 200, 0, -200))
    record = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(header.ljust(SECTOR_BYTES, b"\0") + record)
    content[ID_OFFSET : ID_OFFSET + 4] = application.to_bytes(4, "big")
    path.write_bytes(content)


async def unfinished(source: Path, target: Path) -> None:
    """Copy a file until all is written, and the copy is not complete yet."""
    await fill(source, "a")
    with pytest.raises(CutOff.Error):
        await copy(
            SqliteBackend(source), CutOff(SqliteBackend(target)), lambda _: None, unused_seconds=0
        )
    assert read_application(target) == UNFINISHED_ID


async def hostnames_in(path: Path) -> list[str]:
    async with open_store(path) as (_, rows):
        return hostnames_of(rows)


async def test_a_registry_refuses_a_copy_whose_completion_is_undone(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    await unfinished(source, target)
    write_unsettled(target, APPLICATION_ID)

    with pytest.raises(StoreOpenError, match="is an unfinished copy"):
        await hostnames_in(target)

    assert read_application(target) == UNFINISHED_ID


async def test_a_copy_whose_completion_is_undone_is_continued(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    await unfinished(source, target)
    write_unsettled(target, APPLICATION_ID)

    assert await Copy(SqliteBackend(source), SqliteBackend(target)).ended() == 1

    assert await hostnames_in(target) == ["a"]


async def test_a_file_whose_mark_that_it_was_moved_is_undone_is_marked_again(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    await fill(source, "a")
    write_unsettled(source, MOVED_ID)

    assert await Copy(SqliteBackend(source), SqliteBackend(target)).ended() == 1

    assert read_application(source) == MOVED_ID
    assert await hostnames_in(target) == ["a"]
