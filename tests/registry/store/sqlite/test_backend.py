"""What the commands do with a file: nothing is lost, and a registry starts on it again."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
import yaml

from registry.errors import StoreOpenError
from registry.main import main
from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.sqlite_store import (
    fill,
    hostnames_of,
    ignore,
    open_store,
    row,
    start_error,
)
from tests.support.registry.stores.used_stores import continues
from tests.support.requirements import NEEDS_ROOT

USER = 12345


async def crashed(folder: Path, *hostnames: str) -> Path:
    """Return a store as a crash leaves it: all that it knows is in its log."""
    await asyncio.to_thread(folder.mkdir)
    living = folder / "living.db"
    async with open_store(living) as (store, _):
        await asyncio.gather(*[store.put(row(hostname), ignore) for hostname in hostnames])
        for suffix in ("", "-wal"):
            shutil.copy(f"{living}{suffix}", folder / f"r.db{suffix}")
    return folder / "r.db"


async def known(path: Path) -> list[str]:
    """Return the nodes of a store."""
    async with open_store(path) as (_, rows):
        return hostnames_of(rows)


async def test_a_log_without_its_store_stops_the_start(tmp_path: Path) -> None:
    path = await crashed(tmp_path / "s", "a")
    path.rename(path.with_name("moved.db"))

    with pytest.raises(StoreOpenError, match=r"r\.db does not exist, but its log .*r\.db-wal does"):
        await known(path)

    assert not path.exists()
    path.with_name("moved.db").rename(path)
    assert await known(path) == ["a"]


@pytest.mark.slow
async def test_a_store_moved_away_as_the_advice_says_leaves_room_for_a_new_one(
    tmp_path: Path,
) -> None:
    path = await crashed(tmp_path / "s", "a")
    broken = bytearray(path.read_bytes())
    broken[200:4000] = bytes(3800)
    path.write_bytes(broken)
    path.with_name("r.db-wal").write_bytes(path.with_name("r.db-wal").read_bytes()[:100])
    with pytest.raises(
        StoreOpenError, match="together with those beside it that end in -wal and -shm"
    ):
        await known(path)

    for suffix in ("", "-wal", "-shm"):
        if path.with_name(f"r.db{suffix}").exists():
            path.with_name(f"r.db{suffix}").rename(tmp_path / f"away{suffix}")

    assert await known(path) == []


@pytest.mark.slow
async def test_each_restore_keeps_what_was_there_with_what_its_log_held(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    await fill(tmp_path / "other.db", "restored")
    SqliteBackend(tmp_path / "other.db").backup(backup)
    path = await crashed(tmp_path / "s", "first")

    restored = SqliteBackend(path).restore(backup)
    assert restored == (1, str(path.with_name("r.db.before-restore")))
    assert await known(path) == ["restored"]
    await fill(path, "second")
    again = SqliteBackend(path).restore(backup)
    assert again == (1, str(path.with_name("r.db.before-restore.2")))

    assert await known(path) == ["restored"]
    assert await known(path.with_name("r.db.before-restore")) == ["first"]
    assert await known(path.with_name("r.db.before-restore.2")) == ["restored", "second"]


@pytest.mark.slow
async def test_a_restore_that_is_cut_off_leaves_the_whole_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "backup"
    await fill(tmp_path / "other.db", "restored")
    SqliteBackend(tmp_path / "other.db").backup(backup)
    path = await crashed(tmp_path / "s", "first")

    def cut_off(_draft: Path, _path: Path) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as power:
        power.setattr("runtime.durable.rename_durably", cut_off)
        with pytest.raises(StoreOpenError, match="the power is gone"):
            SqliteBackend(path).restore(backup)

    assert await known(path) == ["first"]
    assert SqliteBackend(path).restore(backup).nodes == 1
    assert await known(path) == ["restored"]


@pytest.mark.slow
async def test_what_cannot_be_read_is_kept_with_its_log_as_it_is(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    await fill(tmp_path / "other.db", "restored")
    SqliteBackend(tmp_path / "other.db").backup(backup)
    path = tmp_path / "r.db"
    path.write_bytes(b"precious")
    path.with_name("r.db-wal").write_bytes(b"log")

    kept = SqliteBackend(path).restore(backup).kept

    assert kept == str(path.with_name("r.db.before-restore"))
    assert path.with_name("r.db.before-restore").read_bytes() == b"precious"
    assert path.with_name("r.db.before-restore-wal").read_bytes() == b"log"
    assert await known(path) == ["restored"]


@pytest.mark.slow
@NEEDS_ROOT
async def test_what_root_makes_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    backup, folder = tmp_path / "backup", tmp_path / "s"
    folder.mkdir()
    os.chown(folder, USER, USER)
    path = folder / "r.db"
    await fill(path, "a")
    SqliteBackend(path).backup(backup)
    assert set(owners(folder).values()) == {USER}
    for file in folder.iterdir():
        file.unlink()

    SqliteBackend(path).restore(backup)
    assert owners(folder) == {"r.db": USER, "r.db.lock": USER}


@NEEDS_ROOT
async def test_what_root_restores_belongs_to_the_owner_of_the_store(tmp_path: Path) -> None:
    backup, path = tmp_path / "backup", tmp_path / "r.db"
    await fill(path, "a")
    SqliteBackend(path).backup(backup)
    os.chown(path, USER, USER)

    SqliteBackend(path).restore(backup)

    assert owners(tmp_path)["r.db"] == USER
    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (USER, 0o600)


def owners(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_uid for file in folder.iterdir()}


async def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "r.db.lock").symlink_to(victim)

    with pytest.raises(StoreOpenError, match="lock cannot be written"):
        await known(tmp_path / "r.db")

    assert victim.read_text() == "precious"


def command(tmp_path: Path, *words: str, store: str = "r.db") -> list[str]:
    """Write settings that name a store; return the arguments of a command."""
    file = tmp_path / "registry.yml"
    key = {"name": "ops", "value": "0123456789abcdef", "allow": ["read", "write"]}
    file.write_text(yaml.safe_dump({"keys": [key], "store": f"sqlite:///{tmp_path / store}"}))
    return ["--config", str(file), *words]


def test_a_directory_that_does_not_exist_is_reported_by_the_check_and_by_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(tmp_path, store="none/r.db")

    assert main([*arguments, "--check"]) == 0  # the settings may be for another machine
    assert f"the directory {tmp_path / 'none'} does not exist" in capsys.readouterr().err
    assert main(arguments) == 1
    assert f"the directory {tmp_path / 'none'} does not exist; make it" in capsys.readouterr().err


@pytest.mark.slow
async def test_the_command_shows_what_it_kept_if_there_was_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup, path = tmp_path / "backup", tmp_path / "r.db"
    await fill(tmp_path / "other.db", "a")
    SqliteBackend(tmp_path / "other.db").backup(backup)
    arguments = command(tmp_path, "restore", str(backup))

    assert main(arguments) == 0
    assert "1 nodes; there was no store before" in capsys.readouterr().out
    assert main(arguments) == 0
    assert f"what was there before is {path}.before-restore\n" in capsys.readouterr().out


@pytest.mark.slow
async def test_the_check_of_a_store_shows_of_a_log_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await crashed(tmp_path / "s", "a")
    path.unlink()

    assert main(command(tmp_path, "check", store="s/r.db")) == 1
    assert f"{path}-wal" in capsys.readouterr().err


@pytest.mark.slow
async def test_a_backup_of_a_store_in_use_is_whole_and_can_be_restored(tmp_path: Path) -> None:
    path, copy = tmp_path / "r.db", tmp_path / "copy"
    async with open_store(path) as (store, _):
        await asyncio.gather(*[store.put(row(f"h{i}"), ignore) for i in range(300)])
        assert SqliteBackend(path).backup(copy) == 300
        await store.delete("h1", ignore)
        with pytest.raises(StoreOpenError, match="in use"):
            SqliteBackend(path).restore(copy)

    assert SqliteBackend(path).restore(copy).nodes == 300
    async with open_store(path) as (_, rows):
        assert len(rows) == 300
    assert (tmp_path / "r.db.before-restore").exists()


@pytest.mark.slow
async def test_a_backup_replaces_nothing_and_of_a_broken_store_there_is_none(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "r.db", tmp_path / "copy"
    await fill(path, "a")
    SqliteBackend(path).backup(copy)
    with pytest.raises(StoreOpenError, match="exists"):
        SqliteBackend(path).backup(copy)
    broken = bytearray(copy.read_bytes())
    broken[broken.index(b'{"labels":["a"]') + 12] ^= 1
    (tmp_path / "broken").write_bytes(broken)
    with pytest.raises(StoreOpenError, match="corrupt"):
        SqliteBackend(path).restore(tmp_path / "broken")
    assert SqliteBackend(path).check() == 1


@pytest.mark.slow
async def test_the_command_deletes_nodes_and_shows_of_those_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(tmp_path / "r.db", "a", "b", "c")

    assert main(command(tmp_path, "delete", "A.", "c", "a")) == 0
    assert capsys.readouterr().out == "a: deleted\nc: deleted\n"
    assert main(command(tmp_path, "delete", "c", "b")) == 1
    assert capsys.readouterr().out == "c: no such node\nb: deleted\n"

    assert await known(tmp_path / "r.db") == []


@pytest.mark.slow
async def test_a_store_in_use_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(tmp_path / "r.db", "a")
    async with open_store(tmp_path / "r.db"):
        assert main(command(tmp_path, "delete", "a")) == 1
    assert "in use by another process" in capsys.readouterr().err
    assert await known(tmp_path / "r.db") == ["a"]


@pytest.mark.slow
async def test_what_only_the_log_of_a_killed_registry_holds_is_deleted(tmp_path: Path) -> None:
    await fill(tmp_path / "r.db", "a", "b")
    async with open_store(tmp_path / "r.db"):
        await fill(tmp_path / "other.db")
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"r.db{suffix}", tmp_path / f"killed.db{suffix}")

    assert SqliteBackend(tmp_path / "killed.db").delete(["a"]) == ["a"]

    assert await known(tmp_path / "killed.db") == ["b"]


@pytest.mark.slow
async def test_a_deletion_makes_no_other_store_of_it(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    async with open_store(path) as (store, _):
        await store.confirm()
    await fill(path, "a")
    SqliteBackend(path).delete(["a"])

    assert await continues(SqliteBackend(path))
    assert await known(path) == []


async def test_what_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with pytest.raises(StoreOpenError, match="does not exist"):
        SqliteBackend(path).delete(["a"])
    assert not path.with_name("r.db.lock").exists()
    path.write_text("hello")
    with pytest.raises(StoreOpenError, match="is not a SQLite database"):
        SqliteBackend(path).delete(["a"])
    assert "is not a SQLite database" in await start_error(path)
