import asyncio
import subprocess
from functools import partial
from pathlib import Path

import pytest

from agent.state.deregistration import Deregistration
from dev.waiting import until
from tests.support.machine.disks import memory_disk
from tests.support.requirements import need_root


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
