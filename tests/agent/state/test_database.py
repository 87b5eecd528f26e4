"""The agent's database: durable, its own, and never touched when it is not."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent.state.database import AgentDatabase, StoreError, StoreUnusable
from agent.state.rows import AppTransaction
from tests.support.agent.database import store_creation
from tests.support.agent.database.stored_app import APP, ENTRY
from tests.support.agent.database.transactions import finished, read_back, stored


@pytest.mark.slow
async def test_a_first_start_that_is_interrupted_anywhere_can_be_repeated(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", store_creation.__name__, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    lines = (await program.communicate())[0].decode().splitlines()
    first, second = lines[::2], lines[1::2]

    assert len(first) == store_creation.LARGEST // store_creation.STEP
    assert all("cannot be used now" in each for each in first), (
        "no start was interrupted in its middle"
    )
    assert not any("damaged" in each for each in lines)
    assert set(second) == {"0"}


def open_files() -> list[Path]:
    return [each.resolve() for each in Path("/proc/self/fd").iterdir()]


async def test_what_is_put_is_there_after_it_is_opened_again(
    store: AgentDatabase, tmp_path: Path
) -> None:
    await store.write(stored(APP))
    await store.begin(ENTRY)
    await store.close()

    again = await read_back(tmp_path / "agent.db")

    assert (again.apps, again.entries) == ([APP], [ENTRY])


async def test_a_finished_change_is_gone_with_the_app_as_it_then_is(
    store: AgentDatabase, tmp_path: Path
) -> None:
    await store.write(stored(APP))
    await store.begin(ENTRY)
    await store.write(finished(ENTRY, None))
    await store.close()

    kept = await read_back(tmp_path / "agent.db")

    assert (kept.apps, kept.entries) == ([], [])


@pytest.mark.slow
async def test_the_data_that_a_deleted_app_keeps_is_remembered_until_it_has_an_app_again(
    store: AgentDatabase, tmp_path: Path
) -> None:
    await store.write(finished(ENTRY, None, kept_data={"/srv": "rollcall-web"}))
    await store.close()

    store = AgentDatabase(tmp_path / "agent.db")
    assert (await store.open()).kept_data == {"web": {"/srv": "rollcall-web"}}
    await store.write(finished(ENTRY, APP, undone="2"))
    await store.close()

    store = AgentDatabase(tmp_path / "agent.db")
    assert (await store.open()).kept_data == {"web": {"/srv": "rollcall-web"}}
    await store.write(finished(ENTRY, APP, kept_data={}))
    await store.close()

    assert (await AgentDatabase(tmp_path / "agent.db").open()).kept_data == {}


async def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = AgentDatabase(tmp_path / "below" / "agent.db")
    await store.open()
    await store.write(stored(APP))

    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "below").iterdir()}

    assert modes == {0o600}
    await store.close()


@pytest.mark.slow
async def test_a_database_that_another_program_has_locked_is_rejected(
    store: AgentDatabase, tmp_path: Path
) -> None:
    await store.close()
    with closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnusable, match="another program"):
            await AgentDatabase(tmp_path / "agent.db").open()


async def test_a_corrupt_file_stops_the_start_and_is_left_as_it_is(
    store: AgentDatabase, tmp_path: Path
) -> None:
    path = tmp_path / "agent.db"
    await store.write(stored(APP))
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 2000] = b"\xee" * 2000
    path.write_bytes(content)

    with pytest.raises(StoreUnusable, match="left as it is"):
        await AgentDatabase(path).open()

    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"this is no database, but some text " * 200, b"SQLite"])
async def test_what_is_no_database_stops_the_start_and_is_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    store = AgentDatabase(path)

    with pytest.raises(StoreUnusable):
        await store.open()

    assert path.read_bytes() == content
    assert path not in open_files()


async def test_another_programs_database_is_rejected_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    content = path.read_bytes()

    with pytest.raises(StoreUnusable, match="other program"):
        await AgentDatabase(path).open()

    assert path.read_bytes() == content


async def test_a_newer_agents_database_is_rejected(store: AgentDatabase, tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(StoreUnusable, match="newer"):
        await AgentDatabase(path).open()


async def test_a_row_that_cannot_be_read_stops_the_start(
    store: AgentDatabase, tmp_path: Path
) -> None:
    path = tmp_path / "agent.db"
    await store.close()
    broken = sqlite3.connect(path)
    broken.execute("INSERT INTO apps VALUES ('web', '{\"name\": 1}')")
    broken.commit()
    broken.close()

    with pytest.raises(StoreUnusable, match="damaged"):
        await AgentDatabase(path).open()


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "agent.db").symlink_to(tmp_path / "target")

    with pytest.raises(StoreUnusable):
        await AgentDatabase(tmp_path / "agent.db").open()

    assert (tmp_path / "target").read_bytes() == b""


async def test_a_write_that_no_row_can_hold_does_not_affect_the_next(store: AgentDatabase) -> None:
    with pytest.raises(UnicodeEncodeError):
        await store.write(AppTransaction(name="\ud800", app=APP))

    await store.write(stored(APP))


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = AgentDatabase(tmp_path / "agent.db")
    with pytest.raises(StoreError, match="closed"):
        await store.write(stored(APP))


def test_neither_an_app_nor_an_entry_shows_secrets_when_printed() -> None:
    shown = f"{APP!r} {ENTRY!r} {[APP]} {ENTRY}"

    assert "s3cret" not in shown
    assert "$6$" not in shown
