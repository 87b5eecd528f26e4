"""`rollouts`: the rollouts that are not done are listed, and forgotten."""

import asyncio
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from cli.commands.rollouts import kept_item
from cli.reach.contexts import ContextFile, state_folder
from cli.rollout.rollout import (
    AppNow,
    Bounds,
    HostProgress,
    Rollout,
    RolloutChange,
    StateFile,
)
from runtime.durable import new_file
from tests.support.cli.command import Rollcall

pytestmark = pytest.mark.slow
OLD, NEW = AppNow(image="s:1", revision=3, state="up"), AppNow(image="s:2", revision=4, state="up")
MINUTES = 60


def keep(rollcall: Rollcall, app: str, *, context: str = "test", minutes: int = 5) -> StateFile:
    """Keep a rollout whose first host is done and whose second has failed, so many minutes ago."""
    _, fields = ContextFile(rollcall.contexts).chosen("test")
    file = StateFile(state_folder("rollouts", rollcall.environment, context, fields), app)
    hosts = [
        HostProgress(host="web-0", is_touched=True, state="done", before=OLD, now=NEW),
        HostProgress(host="web-1", is_touched=True, state="failed", before=OLD, now=OLD),
        HostProgress(host="web-2", before=OLD),
        HostProgress(host="web-3", before=OLD),
    ]
    change = RolloutChange(action="update", app=app, fields={"env": {"KEY": "secret"}})
    with file.locked():
        file.save(Rollout(change=change, bounds=Bounds(), hosts=hosts))
    then = time.time() - minutes * MINUTES
    os.utime(file.path, (then, then))
    return file


async def test_each_is_a_row_with_the_command_that_goes_on(rollcall: Rollcall) -> None:
    keep(rollcall, "shop")
    keep(rollcall, "api", minutes=180)
    keep(rollcall, "other", context="lab")

    listed = await rollcall("rollouts")

    assert listed.status == 0
    assert [line.split() for line in listed.out.splitlines()] == [
        ["APP", "CHANGE", "LAST", "CHANGE", "DONE", "FAILED", "LEFT", "NOTE"],
        *(
            [app, "update", "env", ago, "ago", *"112", "-"]
            for app, ago in (("api", "3h"), ("shop", "5m"))
        ),
        ["to", "go", "on:", "rollcall", "update", "api", "--resume"],
        ["to", "go", "on:", "rollcall", "update", "shop", "--resume"],
    ]


async def test_programs_get_the_hosts_and_no_values(rollcall: Rollcall) -> None:
    file = keep(rollcall, "shop")

    listed = await rollcall("--context", "test", "rollouts", "-o", "json")

    assert listed.json() == [
        {
            "app": "shop",
            "action": "update",
            "fields": ["env"],
            "changed_at": int(file.path.stat().st_mtime),
            "running": False,
            "done": ["web-0"],
            "failed": ["web-1"],
            "left": ["web-2", "web-3"],
            "resume": "rollcall --context test update shop --resume",
            "error": None,
        }
    ]


async def test_one_that_runs_is_not_to_be_resumed(rollcall: Rollcall) -> None:
    file = keep(rollcall, "shop")

    with file.locked():
        listed = await rollcall("rollouts")
        rejected = await rollcall("rollouts", "--forget", "shop")

    assert listed.rows()[0][-3:] == ["it", "runs", "now"]
    assert (rejected.status, file.path.exists()) == (2, True)
    assert "another rollout of shop runs on this machine" in rejected.err


async def test_people_are_reported_that_there_is_none(rollcall: Rollcall) -> None:
    listed = await rollcall("rollouts")

    assert (listed.status, listed.out) == (0, "")
    assert listed.err == "no rollout is unfinished in this context, on this machine\n"


async def test_one_is_forgotten_and_what_its_hosts_have_is_reported(rollcall: Rollcall) -> None:
    shop, api = keep(rollcall, "shop"), keep(rollcall, "api")

    forgotten = await rollcall("rollouts", "--forget", "shop")

    assert (forgotten.status, forgotten.out) == (0, "")
    assert forgotten.err == (
        "forgotten: update shop, env; 1 of 4 hosts are done; left as they are:"
        " web-0 (new: s:2, revision 4, up), web-1 (as before: s:1, revision 3, up),"
        " web-2 (not touched), web-3 (not touched)\n"
    )
    assert (shop.path.exists(), api.path.exists()) == (False, True)


async def test_a_rollout_goes_on_at_no_other_registry(rollcall: Rollcall) -> None:
    kept = keep(rollcall, "shop")
    rollcall.use(registry="https://other.example.com")

    listed = await rollcall("rollouts")
    resumed = await rollcall("update", "shop", "--resume", "--yes")

    assert "no rollout is unfinished" in listed.err
    assert (resumed.status, kept.path.exists()) == (2, True)
    assert "no rollout of this app to resume" in resumed.err


@pytest.mark.parametrize("name", ["none", "../lab/shop"])
async def test_what_is_not_kept_cannot_be_forgotten(rollcall: Rollcall, name: str) -> None:
    other = keep(rollcall, "shop", context="lab")

    rejected = await rollcall("rollouts", "--forget", name)

    assert (rejected.status, other.path.exists()) == (2, True)
    assert rejected.err.endswith("next: rollcall rollouts\n")


async def test_a_file_that_cannot_be_read_is_a_row_and_can_be_forgotten(rollcall: Rollcall) -> None:
    file = keep(rollcall, "shop")
    await asyncio.to_thread(Path.write_text, file.path, "broken")

    listed = await rollcall("rollouts")
    forgotten = await rollcall("rollouts", "--forget", "shop")

    assert "cannot be used" in listed.out
    assert (forgotten.status, file.path.exists()) == (0, False)
    assert forgotten.err == "forgotten: its file cannot be read\n"


def test_a_rollout_begins_although_somebody_looks_whether_it_runs(tmp_path: Path) -> None:
    file = StateFile(tmp_path, "shop", wait_seconds=60)
    looks = (tmp_path / "shop.lock").open("w")
    fcntl.flock(looks, fcntl.LOCK_SH)
    ending = threading.Timer(0.02, looks.close)
    ending.start()

    with file.locked():
        ending.join()
        assert file.is_locked()


def test_a_rollout_that_ends_while_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    class Ending(StateFile):
        def load(self) -> Rollout:
            self.forget()
            return super().load()

    (tmp_path / "shop.json").write_text("{}")

    assert kept_item("rollcall", Ending(tmp_path, "shop")) is None


def test_what_a_killed_command_left_is_removed_with_the_rollout(tmp_path: Path) -> None:
    others = ("shop.json.json", "shop.lock", "other.json", ".other.json.12.new")
    for name in others:
        (tmp_path / name).touch()
    with new_file(tmp_path / "shop.json") as draft:
        pass
    draft.touch()  # a killed command leaves it

    StateFile(tmp_path, "shop").forget()

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
