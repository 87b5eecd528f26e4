"""The files and locks of a state directory, and the deregistration in it."""

import asyncio
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agent.state.files import StateInUse, StateUnusable
from agent.state.identity import Identity
from agent.state.lock import Deregistration, LockHolder, lock_holder, state_lock
from dev.waiting import until
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root

NOBODY = 65534


@pytest.fixture
def daemons_folder(tmp_path: Path) -> Path:
    """Return a state directory that belongs to the user that the daemon runs as."""
    need_root()
    os.chown(tmp_path, NOBODY, NOBODY)
    return tmp_path


def owners(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return owner, group and mode of each file by name."""
    stats = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (at.st_uid, at.st_gid, at.st_mode & 0o777) for name, at in stats.items()}


def test_what_root_makes_in_the_state_is_the_daemons_and_nobody_elses(daemons_folder: Path) -> None:
    Identity(directory=daemons_folder, machine=None).claim("https://registry", "web-1", "k" * 20)
    deregistration = Deregistration(directory=daemons_folder)
    assert deregistration.begin(within_seconds=30)

    assert owners(daemons_folder) == dict.fromkeys(
        ("identity.json", "left", "presence.lock"), (NOBODY, NOBODY, 0o600)
    )


@pytest.mark.slow
async def test_leaving_waits_for_what_is_being_said(tmp_path: Path) -> None:
    deregistration = Deregistration(directory=tmp_path)
    with deregistration.permit() as may_speak:
        assert may_speak
        begin = partial(Deregistration(directory=tmp_path).begin, within_seconds=3600)
        leaving = asyncio.create_task(asyncio.to_thread(begin))
        await asyncio.to_thread(
            until, deregistration.is_deregistered, "the word to leave", within=60
        )
        assert not leaving.done()
        with deregistration.permit() as may_speak_now:
            assert not may_speak_now
    assert await leaving


def test_leaving_does_not_wait_for_ever(tmp_path: Path) -> None:
    deregistration = Deregistration(directory=tmp_path)

    with deregistration.permit():
        assert not Deregistration(directory=tmp_path).begin(within_seconds=0.01)

    assert deregistration.is_deregistered()


@pytest.mark.real("mount")
def test_a_host_may_speak_though_its_disk_has_become_read_only(tmp_path: Path) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="64k") as folder:
        deregistration = Deregistration(directory=folder)
        with deregistration.permit() as may_speak:
            assert may_speak
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with deregistration.permit() as may_speak:
            assert may_speak


def test_a_directory_has_one_agent_and_shows_which(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None

    with state_lock(tmp_path):
        assert lock_holder(tmp_path) == LockHolder(os.getpid(), "")
        with pytest.raises(StateInUse, match=rf"in use by another .* \(pid {os.getpid()}\)"):
            state_lock(tmp_path).__enter__()

    assert lock_holder(tmp_path) is None
    with state_lock(tmp_path):
        assert lock_holder(tmp_path) == LockHolder(os.getpid(), "")


def test_the_holder_is_reported_by_its_instance(tmp_path: Path) -> None:
    for instance in ("1" * 32, "2" * 32, ""):
        with state_lock(tmp_path, instance=instance):
            assert lock_holder(tmp_path) == LockHolder(os.getpid(), instance)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(
        StateUnusable,
        match=r"file/state cannot be written: Not a directory; .*: create that directory",
    ):
        state_lock(tmp_path / "file" / "state").__enter__()


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with state_lock(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_to_ask_who_runs_keeps_no_agent_from_starting(tmp_path: Path) -> None:
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            lock_holder(tmp_path)

    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            for _ in range(300):
                with state_lock(tmp_path):
                    pass
        finally:
            ended.set()
    assert [each.result() for each in asking] == [None, None]


@pytest.mark.real("mount")
def test_a_disk_without_room_for_the_state_is_named(tmp_path: Path) -> None:
    need_root()
    with memory_disk(tmp_path / "disk", size="64k") as folder:
        fill_disk(folder)
        with pytest.raises(StateUnusable, match=r"agent\.lock cannot be written: No space left"):
            state_lock(folder).__enter__()
