"""A store that is not the one that the last registry left is distinguished from one that is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.store.sqlite.backend import SqliteBackend
from registry.store.sqlite.store import SqliteStore
from tests.support.machine.clocks import ManualClock
from tests.support.registry.stores.sqlite_store import (
    Batches,
    ignore,
    open_store,
    row,
)


async def continues(path: Path) -> bool:
    """Start a registry on a store and end it in order; return whether it continues."""
    store = SqliteStore(path=path, monotonic=ManualClock(), observe=Batches().observe)
    try:
        return (await store.load()).continues
    finally:
        await store.close()


async def settled(path: Path, *hostnames: str, seconds: float = 60) -> Path:
    """Run a registry on a store for so long, its warm-up over, and end it in order."""
    path.parent.mkdir(exist_ok=True)
    clock = ManualClock()
    async with open_store(path, uptime=clock) as (store, _):
        await store.confirm()
        clock.now += seconds
        for hostname in hostnames:
            await store.put(row(hostname), ignore)
    return path


def copy(path: Path, to: Path) -> Path:
    """Copy the file of a store, with its log."""
    for suffix in ("", "-wal"):
        to.with_name(f"{to.name}{suffix}").unlink(missing_ok=True)
        if path.with_name(f"{path.name}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{to}{suffix}")
    return to


@pytest.mark.slow
async def test_a_registry_continues_over_its_own_store(tmp_path: Path) -> None:
    path = await settled(tmp_path / "r.db", "a")
    for _ in range(3):
        assert await continues(path)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 3, 60])
async def test_a_registry_that_was_killed_continues(tmp_path: Path, at: float) -> None:
    path, killed = await settled(tmp_path / "r.db", "a"), tmp_path / "killed"
    clock = ManualClock()
    async with open_store(path, uptime=clock) as (store, _):
        clock.now += at
        await store.put(row("b"), ignore)
        shutil.copytree(tmp_path, killed, ignore=lambda *_: ["killed"])

    assert await continues(killed / "r.db")


@pytest.mark.slow
async def test_a_store_that_is_new_or_was_lost_does_not_continue(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    assert not await continues(path)
    assert not await continues(path)  # nobody confirmed it
    await settled(path, "a")
    assert await continues(path)

    path.unlink()

    assert not await continues(path)
    assert not await continues(path)


@pytest.mark.slow
@pytest.mark.parametrize("age", [6, 3600])
async def test_an_earlier_copy_of_the_file_does_not_continue(tmp_path: Path, age: float) -> None:
    path, saved = await settled(tmp_path / "r.db", "a"), tmp_path / "saved.db"
    clock = ManualClock()
    async with open_store(path, uptime=clock) as (store, _):
        await store.put(row("b"), ignore)
        copy(path, saved)  # in the same run of the registry
        clock.now += age
        await store.put(row("c"), ignore)
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path, killed, ignore=lambda *_: ["killed"])

    for place in (path, killed / "r.db"):
        copy(saved, place)
        assert not await continues(place)
        # A registry that ran on it for longer than it is old, and was never confirmed:
        clock = ManualClock()
        async with open_store(place, uptime=clock) as (store, _):
            clock.now += 2 * age
            await store.put(row("d"), ignore)
        assert not await continues(place)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 1, 4])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_copy_from_before_a_short_run_does_not_continue(
    tmp_path: Path, seconds: float, *, is_killed: bool
) -> None:
    path = await settled(tmp_path / "data" / "r.db", "a")
    saved, killed = copy(path, tmp_path / "saved.db"), tmp_path / "killed"
    clock = ManualClock()
    async with open_store(path, uptime=clock) as (store, _):
        clock.now += seconds
        await store.put(row("b"), ignore)
        shutil.copytree(path.parent, killed)
    place = killed / "r.db" if is_killed else path

    copy(saved, place)

    assert not await continues(place)
    assert not await continues(place)


@pytest.mark.slow
async def test_a_start_that_is_killed_continues_and_older_copies_do_not(tmp_path: Path) -> None:
    path = await settled(tmp_path / "data" / "r.db", "a")
    oldest = copy(path, tmp_path / "oldest.db")
    stamp = path.with_name("r.db.stamp")
    assert await continues(path)
    before, word_before = path.read_bytes(), stamp.read_bytes().split()[0]
    async with open_store(path):
        after = {suffix: path.with_name(f"r.db{suffix}").read_bytes() for suffix in ("", "-wal")}
        final = stamp.read_bytes()
    both = b" ".join([word_before, final])

    for number, (file, log, mark) in enumerate(
        [
            (before, b"", both),
            (after[""], after["-wal"], both),
            (after[""], after["-wal"], final),
        ]
    ):
        found = tmp_path / str(number) / "r.db"
        shutil.copytree(path.parent, found.parent)
        found.write_bytes(file)
        found.with_name("r.db-wal").write_bytes(log)
        found.with_name("r.db.stamp").write_bytes(mark)
        with_oldest = tmp_path / f"{number}-oldest" / "r.db"
        shutil.copytree(found.parent, with_oldest.parent)
        copy(oldest, with_oldest)

        assert await continues(found), number
        assert await continues(found), number
        assert not await continues(with_oldest), number


@pytest.mark.slow
async def test_the_store_of_another_registry_does_not_continue(tmp_path: Path) -> None:
    path = await settled(tmp_path / "one" / "r.db", "a")
    other = await settled(tmp_path / "other" / "r.db", "a", seconds=9999)

    copy(other, path)

    assert not await continues(path)


def restored(backup: Path, path: Path) -> None:
    SqliteBackend(path).restore(backup)


def copied(backup: Path, path: Path) -> None:
    copy(backup, path)


@pytest.mark.slow
@pytest.mark.parametrize("put_back", [restored, copied])
async def test_a_backup_does_not_continue_however_it_was_restored(
    tmp_path: Path, put_back: Callable[[Path, Path], object]
) -> None:
    path, backup = await settled(tmp_path / "r.db", "a"), tmp_path / "backup"
    SqliteBackend(path).backup(backup)  # the latest state of all

    put_back(backup, path)

    assert not await continues(path)
    await settled(path)
    assert await continues(path)


@pytest.mark.parametrize("content", [b"", b"x", b"a b c", b"\xff\xff", b"word 1.5\n", b"w\n"])
async def test_a_stamp_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    path = await settled(tmp_path / "r.db", "a")
    path.with_name("r.db.stamp").write_bytes(content)

    assert not await continues(path)
