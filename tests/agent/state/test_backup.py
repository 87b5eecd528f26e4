"""A copy of the agent's database, made while it is in use."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from agent.model import App
from agent.state.database import AgentDatabase, StoreUnusable, back_up
from tests.support.agent.database.transactions import stored
from tests.support.machine.disks import memory_disk
from tests.support.requirements import need_root

APP = App(
    name="web",
    image="app:1",
    ssh_port=20022,
    http_port=20080,
    cpu=50,
    memory=32,
    created_at="2026-01-31T12:00:00Z",
)


@pytest.fixture
async def store(store: AgentDatabase) -> AgentDatabase:
    """Return a database with one app, which is in use."""
    await store.write(stored(APP))
    return store


def backups(folder: Path) -> list[str]:
    """Return the names of backups in a folder, and of parts of them."""
    return [file.name for file in folder.iterdir() if file.name.startswith("backup")]


@pytest.mark.slow
async def test_a_copy_of_a_database_in_use_has_all_that_was_written(
    store: AgentDatabase, tmp_path: Path
) -> None:
    target = tmp_path / "backup.db"

    assert back_up(tmp_path / "agent.db", target) == 1

    await store.write(stored(msgspec.structs.replace(APP, name="later")))
    assert target.stat().st_mode & 0o777 == 0o600
    copy = AgentDatabase(target)
    assert (await copy.open()).apps == [APP]
    await copy.close()


@pytest.mark.slow
async def test_a_copy_while_the_agent_writes_is_of_one_moment(
    store: AgentDatabase, tmp_path: Path
) -> None:
    done = threading.Event()
    copies = list[int]()

    def copy_again_and_again() -> None:
        while not done.is_set():
            copies.append(back_up(tmp_path / "agent.db", tmp_path / f"{len(copies)}.db"))

    thread = threading.Thread(target=copy_again_and_again)
    thread.start()
    for number in range(100):
        await store.write(stored(msgspec.structs.replace(APP, name=f"web-{number}")))
    done.set()
    thread.join()

    assert copies == sorted(copies)
    assert copies[-1] <= 101


async def test_a_backup_replaces_nothing(store: AgentDatabase, tmp_path: Path) -> None:
    del store
    target = tmp_path / "backup.db"
    target.write_text("mine")

    with pytest.raises(StoreUnusable, match="replaces nothing"):
        back_up(tmp_path / "agent.db", target)

    assert target.read_text() == "mine"


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="does not exist"):
        back_up(tmp_path / "agent.db", tmp_path / "backup.db")

    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_is_not_there_is_reported(store: AgentDatabase, tmp_path: Path) -> None:
    del store
    with pytest.raises(StoreUnusable, match="cannot be written"):
        back_up(tmp_path / "agent.db", tmp_path / "nowhere" / "backup.db")


@pytest.mark.parametrize("damage", ["another program's", "no database", "damaged"])
async def test_what_is_no_sound_database_of_an_agent_is_not_copied(
    store: AgentDatabase, tmp_path: Path, damage: str
) -> None:
    path, target = tmp_path / "agent.db", tmp_path / "backup.db"
    await store.close()
    if damage == "another program's":
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA application_id = 1")
    elif damage == "no database":
        path.write_bytes(b"this is no database, but some text " * 200)
    else:
        content = bytearray(path.read_bytes())
        content[4096:8192] = b"\xee" * 4096
        path.write_bytes(content)

    with pytest.raises(StoreUnusable):
        back_up(path, target)

    assert backups(tmp_path) == []


@pytest.mark.real("mount")
async def test_a_disk_without_room_leaves_no_part_of_a_backup(
    store: AgentDatabase, tmp_path: Path
) -> None:
    need_root()
    for number in range(200):
        await store.write(
            stored(msgspec.structs.replace(APP, name=f"web-{number}", description="x" * 1000))
        )

    with memory_disk(tmp_path / "disk", size="64k") as disk:
        with pytest.raises(StoreUnusable, match="full"):
            back_up(tmp_path / "agent.db", disk / "backup.db")

        assert list(disk.iterdir()) == []
